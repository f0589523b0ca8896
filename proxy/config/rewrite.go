package config

import (
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config/internal/form"

	"golang.org/x/net/http/httpguts"
)

func (r *routes) rewrite(f *rewriteForm, p pattern) Rewrite {
	if f == nil {
		return Rewrite{}
	}
	made := Rewrite{StripPrefix: r.prefix(&f.StripPrefix), AddPrefix: r.prefix(&f.AddPrefix)}
	made.Request = r.fields(f.Headers, requestFields())
	made.Response = r.fields(f.ResponseHeaders, responseFields())
	if host, ok := made.Request.Set["Host"]; ok {
		delete(made.Request.Set, "Host")
		made.Host = host
		if !httpguts.ValidHostHeader(host) || strings.ContainsAny(host, "/@ ") {
			r.Wrong(f.Headers, form.Quote(host)+" is not a host", "write for example api.example.com or 10.0.0.1:8080")
		}
	}
	if made.StripPrefix != "" && p.text != "" && !begins(p.text, made.StripPrefix) {
		r.Warn(&f.StripPrefix, "no path of this route begins with "+made.StripPrefix, "write the beginning of match.path, or leave it out")
	}
	return made
}

// begins reports whether paths that match a pattern can begin with the segments of prefix.
func begins(pattern, prefix string) bool {
	segments, _ := split(pattern[1:])
	for i, want := range strings.Split(prefix[1:], "/") {
		if i >= len(segments) {
			return false
		}
		if s := segments[i]; s == "*" {
			return true
		} else if s != want && !strings.HasPrefix(s, "{") {
			return false
		}
	}
	return true
}

// prefix parses a path of whole segments; a trailing slash is ignored.
func (r *routes) prefix(text *string) string {
	if *text == "" {
		return "" // absent, or already reported
	}
	p, f := parsePath(strings.TrimSuffix(*text, "/"))
	switch {
	case strings.Trim(*text, "/") == "":
		r.Wrong(text, "is not a path", "write for example /api, or leave it out")
		return ""
	case f != (fault{}):
		r.Wrong(text, f.what, f.instead)
		return ""
	case len(p.params) > 0:
		r.Wrong(text, "has a parameter", "write plain segments, for example /api/v1")
		return ""
	}
	return p.text
}

// A reserved lists header fields that a rewrite may neither set nor remove, and one that it
// may only set.
type reserved struct {
	names  []string
	prefix string // of names, besides; empty for none
	kept   string // may be set, but not removed
}

// connectionFields returns fields that belong to the connection, frame the message, or are
// set by Weir.
func connectionFields() []string {
	return []string{
		"Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Via", "X-Request-Id",
	}
}

// requestFields returns the reserved fields of requests, including those about the client.
func requestFields() reserved {
	return reserved{names: append(connectionFields(), "Expect", "Forwarded", "Max-Forwards", "X-Real-Ip"), prefix: "X-Forwarded-", kept: "Host"}
}

// responseFields returns the reserved fields of responses.
func responseFields() reserved { return reserved{names: connectionFields()} }

// has reports whether a field may be neither set nor removed.
func (r reserved) has(name string) bool {
	return slices.Contains(r.names, name) || r.prefix != "" && strings.HasPrefix(name, r.prefix)
}

// fields compiles changes to header fields that are not reserved.
func (r *routes) fields(f *fieldsForm, reserved reserved) Fields {
	var made Fields
	if f == nil {
		return made
	}
	for _, name := range form.SortedKeys(f.Set) {
		value := f.Set[name]
		canonical := http.CanonicalHeaderKey(name)
		_, doubled := made.Set[canonical]
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			r.WrongName(value, form.Quote(name)+" is not the name of a header", "write for example X-App")
		case reserved.has(canonical):
			r.WrongName(value, canonical+" is set by Weir itself", "leave it out")
		case doubled:
			r.WrongName(value, canonical+" is given twice, in another spelling", "keep one")
		case !httpguts.ValidHeaderFieldValue(*value):
			r.Wrong(value, "cannot be sent in a header", "write plain characters")
		}
		if made.Set == nil {
			made.Set = map[string]string{}
		}
		made.Set[canonical] = *value
	}
	for i, name := range f.Remove {
		canonical := http.CanonicalHeaderKey(name)
		_, set := made.Set[canonical]
		switch {
		case name == "":
			continue // already reported
		case !httpguts.ValidHeaderFieldName(name):
			r.Wrong(&f.Remove[i], form.Quote(name)+" is not the name of a header", "write for example X-App")
		case reserved.has(canonical) || canonical == reserved.kept:
			r.Wrong(&f.Remove[i], canonical+" is set by Weir itself", "leave it out")
		case set:
			r.Wrong(&f.Remove[i], canonical+" is set and removed", "keep one: what is set replaces what was there")
		}
		made.Remove = append(made.Remove, canonical)
	}
	return made
}
