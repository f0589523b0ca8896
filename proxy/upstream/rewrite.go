package upstream

import (
	"cmp"
	"maps"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// Fields looks up header fields by their canonical names; http.Header is one, and so
// is *http1.Fields.
type Fields interface {
	Values(name string) []string
}

// first is the first value of a field, or "".
func first(f Fields, name string) string {
	if values := f.Values(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// rewrite makes the request for the target. When it is called, httputil has
// already taken away what belongs to the client's connection (the fields that
// Connection names, and the known ones) as well as Forwarded and the three
// well-known X-Forwarded-*. So nothing a client writes into Connection can
// strip what is added here.
func (j *forwarding) rewrite(pr *httputil.ProxyRequest) {
	in, out, t := pr.In, pr.Out, j.trip
	out.Host = cmp.Or(t.SetHost, t.Host)

	h := out.Header
	h.Del("Upgrade") // what comes this way cannot leave HTTP
	h.Del("Connection")
	if !in.ProtoAtLeast(1, 1) {
		h.Del("Expect") // it means nothing there
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return disowned(name, t) })
	w := said(in.Header, t)
	setForwarded(&w, t, &fieldWriter{to: netHeader{h}})
	h.Add("Via", j.pool.via(t))
	if n := maxForwards(in.Method, in.Header); n > 0 {
		h.Set("Max-Forwards", strconv.Itoa(n-1))
	}
	maps.Copy(h, t.Set)
	maps.DeleteFunc(h, func(name string, values []string) bool { return len(values) == 0 && t.Set[name] != nil })
	if out.Body != nil {
		out.Trailer = trailers(in, t)
		j.body = &requestBody{ReadCloser: out.Body, from: in.Trailer, to: out.Trailer}
		out.Body = j.body
	}
}

// via is how this process tells of itself to targets.
func (p *Pool) via(t *Request) string {
	if t.Proto == "HTTP/1.1" {
		return p.via11
	}
	return strings.TrimPrefix(t.Proto, "HTTP/") + " " + p.pseudonym
}

// disowned reports whether the client has no right to say the field called name,
// which is in canonical form: where Weir or its operator speaks for it, or where its
// name differs from theirs only by what is neither letter nor digit, since many
// servers make underscores of all that. X-Forwarded-* is a trusted peer's to say.
func disowned(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip": // see introduce
		return true
	case "Http2-Settings", // half of an upgrade to h2c
		"Proxy": // CGI makes a variable of it that sends clients elsewhere
		return true
	case "X-Request-Id":
		return t.RequestID != ""
	}
	if strings.HasPrefix(name, "X-Forwarded-") {
		return !t.TrustedPeer
	}
	if t.Set[name] != nil {
		return true
	}
	if isHyphenated(name) {
		return false
	}
	return ours(http.CanonicalHeaderKey(hyphenated(name)), t)
}

// isHyphenated reports whether hyphenated leaves name as it is.
func isHyphenated(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '-' && !plain(rune(c)) {
			return false
		}
	}
	return true
}

func plain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// hyphenated is name with hyphens for all that is neither letter nor digit.
func hyphenated(name string) string {
	return strings.Map(func(r rune) rune {
		if plain(r) {
			return r
		}
		return '-'
	}, name)
}

// ours reports whether Weir, or its operator, speaks for the field called name.
func ours(name string, t *Request) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Request-Id", "Via":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || t.Set[name] != nil
}

// maxForwards is how many times a request may still be forwarded, -1 if that is
// not limited: only OPTIONS and TRACE can be (RFC 9110 7.6.2).
func maxForwards(method string, h Fields) int {
	if method != http.MethodOptions && method != http.MethodTrace {
		return -1
	}
	n, err := strconv.ParseUint(first(h, "Max-Forwards"), 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}
