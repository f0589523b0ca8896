package config

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

func (r *routes) rewrite(f *Rewrite, p pattern) Rewrite {
	if f == nil {
		return Rewrite{}
	}
	made := Rewrite{StripPrefix: r.prefix(&f.StripPrefix), AddPrefix: r.prefix(&f.AddPrefix)}
	made.Request = r.fields(&f.Request, requestFields())
	made.Response = r.fields(&f.Response, responseFields())
	if host, ok := made.Request.Set["Host"]; ok {
		delete(made.Request.Set, "Host")
		made.Host = host
		if !httpguts.ValidHostHeader(host) || strings.ContainsAny(host, "/@ ") {
			r.Wrong(&f.Request, form.Quote(host)+" is not a host", "write for example api.example.com or 10.0.0.1:8080")
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
	if r.refuseFirst([]finding{
		{strings.Trim(*text, "/") == "", text, "is not a path", "write for example /api, or leave it out"},
		{f != (fault{}), text, f.what, f.instead},
		{len(p.params) > 0, text, "has a parameter", "write plain segments, for example /api/v1"},
	}) {
		return ""
	}
	return p.text
}

// A reserved lists header fields that a rewrite may neither set nor remove, and one that it
// may only set.
type reserved struct {
	names     []string
	prefix    string           // of names, besides; empty for none
	kept      string           // may be set, but not removed
	elsewhere map[string]fault // what to say of a field that has a place of its own
}

// fault returns what is wrong with setting a field, by its canonical name.
func (r reserved) fault(name string) fault {
	if r.has(name) {
		return fault{name + " is set by Weir itself", "leave it out"}
	}
	return r.elsewhere[name]
}

// headers compiles header fields by their canonical names; nil if there are none.
func (l *loader) headers(forms *map[string]string, example string, reserved reserved) map[string]string {
	var made map[string]string
	for _, name := range form.SortedKeys(*forms) {
		canonical := http.CanonicalHeaderKey(name)
		f := reserved.fault(canonical)
		if _, doubled := made[canonical]; doubled && f.what == "" {
			f = fault{canonical + " is given twice, in another spelling", "keep one"}
		}
		if !httpguts.ValidHeaderFieldName(name) {
			f = fault{form.Quote(name) + " is not the name of a header", "write for example " + example}
		}
		if f.what != "" {
			l.WrongName(form.Entry{Of: forms, Name: name}, f.what, f.instead)
		}
		if made == nil {
			made = map[string]string{}
		}
		made[canonical] = (*forms)[name]
	}
	return made
}

// header compiles the name of a header field; it may be empty.
func (l *loader) header(name *string, example string) string {
	if *name != "" && !httpguts.ValidHeaderFieldName(*name) {
		l.Wrong(name, form.Quote(*name)+" is not the name of a header", "write for example "+example)
	}
	return http.CanonicalHeaderKey(*name)
}

// SetByWeir reports whether Weir sets a field of requests itself, by its canonical name.
func SetByWeir(name string) bool { return requestFields().has(name) }

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
func (r *routes) fields(f *Fields, reserved reserved) Fields {
	var made Fields
	made.Set = r.headers(&f.Set, "X-App", reserved)
	for i, name := range f.Remove {
		canonical := http.CanonicalHeaderKey(name)
		_, set := made.Set[canonical]
		if name == "" {
			continue // already reported
		}
		r.refuseFirst([]finding{
			{!httpguts.ValidHeaderFieldName(name), &f.Remove[i], form.Quote(name) + " is not the name of a header", "write for example X-App"},
			{reserved.has(canonical) || canonical == reserved.kept, &f.Remove[i], canonical + " is set by Weir itself", "leave it out"},
			{set, &f.Remove[i], canonical + " is set and removed", "keep one: what is set replaces what was there"},
		})
		made.Remove = append(made.Remove, canonical)
	}
	return made
}

func (r *routes) redirect(f *Redirect) *Redirect {
	if statuses := []int{301, 302, 303, 307, 308, 0}; !slices.Contains(statuses, f.Status) {
		r.Wrong(&f.Status, "is not the status of a redirect", "write 301, 302, 303, 307 or 308")
	}
	places := strings.NewReplacer("{host}", "h.example", "{path}", "/p", "{query}", "?q")
	for _, m := range words.FindAllString(f.To, -1) {
		if places.Replace(m) == m {
			r.Wrong(&f.To, form.Quote(m)+" is not a placeholder", "write {host}, {path} or {query}")
			return nil
		}
	}
	to, err := url.Parse(places.Replace(f.To))
	switch {
	case f.To == "":
		return nil // already reported
	case err != nil,
		to.Scheme != "" && ((to.Scheme != "http" && to.Scheme != "https") || to.Host == ""),
		to.Scheme == "" && (to.Host != "" || !strings.HasPrefix(to.Path, "/")),
		strings.ContainsAny(f.To, " \\\"<>"):
		r.Wrong(&f.To, form.Quote(f.To)+" is not a URL or a path", "write for example https://www.example.com{path}{query}, or a path such as /new")
	}
	return f
}

// warnLoops warns of redirects that lead back to their own route, which clients follow until they give
// up, as far as the file tells.
func (r *routes) warnLoops(made []*Route) {
	for _, route := range made {
		if route.Redirect != nil && r.leadsBack(route) {
			r.Warn(&route.form.Redirect.To, "leads back to this route, for ever", "write another path or host; for http to https write listen: {redirect_https: true}, or match: {scheme: http}")
		}
		r.warn([]finding{
			{route.Match.Scheme == "http" && r.main.Listen.RedirectHTTPS, &route.form.Match.Scheme, "this route never matches: listen.redirect_https comes first", "leave one of them out"},
			{route.Match.Scheme == "https" && !r.servesScheme("https", route.Match) && len(r.main.ClientIP.TrustedProxies) == 0 && !r.main.Listen.Decide.listens(), &route.form.Match.Scheme, "this route never matches: there is no listen.https, and no proxy is trusted to say that clients use it", "write https: and tls: in listen, or client_ip.trusted_proxies with the networks of the proxy that ends TLS"},
		})
	}
}

// leadsBack reports whether a client that follows the redirect of a route surely comes to this route
// again.
func (r *routes) leadsBack(route *Route) bool {
	const path, query = "/{path}", "{query}" // which no other target has
	m := route.Match
	to, err := url.Parse(strings.NewReplacer("{host}", "", "{path}", path, "{query}", "?"+query).Replace(route.Redirect.To))
	if err != nil {
		return false // already reported
	}
	getOnly := route.Redirect.Status <= 303 && len(m.Methods) > 0 && !slices.Contains(m.Methods, "GET") // clients then send GET
	lacksQuery := len(m.Query) > 0 && !strings.Contains(to.RawQuery, query)
	samePath := to.Path == path || len(m.Params) == 0 && to.EscapedPath() == m.Path
	return !getOnly && !lacksQuery && samePath && r.servesScheme(to.Scheme, m) && hasHost(to.Host, m.Host)
}

// servesScheme reports whether requests to a target with a scheme, or none, reach a route.
func (r *routes) servesScheme(scheme string, m Match) bool {
	listener := map[string]string{"http": r.main.Listen.HTTP, "https": r.main.Listen.HTTPS}
	return scheme == "" || unlessNone(listener[scheme]) != "" && (m.Scheme == "" || m.Scheme == scheme)
}

// hasHost reports whether the host of a target, "" for that of the request, surely matches that of a route.
func hasHost(host, of string) bool {
	_, _, err := net.SplitHostPort(host) // it is unknown who listens on another port
	return host == "" || err != nil && of != "" && strings.EqualFold(host, of)
}
