package upstream

import (
	"cmp"
	"maps"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// rewrite makes the request for the target. When it is called, httputil has
// already taken away what belongs to the client's connection (the fields that
// Connection names, and the known ones) as well as Forwarded and the three
// well-known X-Forwarded-*. So nothing a client writes into Connection can
// strip what is added here.
func (j *journey) rewrite(pr *httputil.ProxyRequest) {
	in, out, t := pr.In, pr.Out, j.trip
	out.Host = cmp.Or(t.As, t.Host)

	h := out.Header
	j.upgrade(h)
	h.Del("Http2-Settings") // half of an upgrade to h2c
	h.Del("Proxy")          // CGI makes a variable of it that sends clients elsewhere
	disown(h, t)
	introduce(h, in.Header, t)
	j.expect(out)
	h["Via"] = append(h["Via"][:len(h["Via"]):len(h["Via"])], strings.TrimPrefix(t.Proto, "HTTP/")+" "+j.pool.pseudonym)
	if n := maxForwards(in.Method, in.Header); n > 0 {
		h.Set("Max-Forwards", strconv.Itoa(n-1))
	}
	if t.RequestID != "" {
		h.Set("X-Request-Id", t.RequestID)
	}
	maps.Copy(h, t.Set)
	maps.DeleteFunc(h, func(name string, values []string) bool { return len(values) == 0 && t.Set[name] != nil })
	if out.Body != nil {
		out.Trailer = trailers(in, t)
		j.body = &requestBody{ReadCloser: out.Body, from: in.Trailer, to: out.Trailer}
		out.Body = j.body
	}
}

// upgrade leaves the request's wish to leave HTTP in h only if it is for
// WebSocket and allowed: a GET without a body (RFC 6455 section 4.1). Anything
// else, h2c above all, would open a way to the target that nobody limits.
func (j *journey) upgrade(h http.Header) {
	in, wish := j.in, j.in.Header["Upgrade"]
	http1 := j.pool.config.Protocol == HTTP1
	may := j.trip.WebSocket && http1 && in.Method == http.MethodGet && in.ContentLength == 0
	if may && h["Upgrade"] != nil && len(wish) == 1 && strings.EqualFold(wish[0], "websocket") && in.ProtoMajor == 1 && in.ProtoMinor >= 1 {
		h.Del("Te")
		return
	}
	h.Del("Upgrade")
	h.Del("Connection")
	if h["Te"] != nil && http1 {
		h.Set("Connection", "TE") // it concerns this connection only (RFC 9110 10.1.4)
	}
}

// expect passes 100-continue on. Such a request gets a connection of its own:
// only then does net/http not ask the client for a body that the target, which
// has answered without it, did not want. In HTTP/1.0 it means nothing; HTTP/2 has
// streams of their own anyway.
func (j *journey) expect(out *http.Request) {
	if !j.in.ProtoAtLeast(1, 1) {
		out.Header.Del("Expect")
	}
	out.Close = out.Header["Expect"] != nil && j.pool.config.Protocol == HTTP1
}

// disown takes out what the client has no right to say: X-Forwarded-* unless
// its peer is trusted, and names that differ from ours only by what is neither
// letter nor digit, since many servers make underscores of all that.
func disown(h http.Header, t *Trip) {
	for name := range h {
		if !t.TrustedPeer && strings.HasPrefix(name, "X-Forwarded-") {
			delete(h, name)
			continue
		}
		if plain := hyphenated(name); plain != name && t.Set[name] == nil && ours(http.CanonicalHeaderKey(plain), t) {
			delete(h, name)
		}
	}
}

// hyphenated is name with hyphens for all that is neither letter nor digit.
func hyphenated(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, name)
}

// ours reports whether Weir, or its operator, speaks for the field called name.
func ours(name string, t *Trip) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Request-Id", "Via":
		return true
	}
	return strings.HasPrefix(name, "X-Forwarded-") || t.Set[name] != nil
}

// maxForwards is how many times a request may still be forwarded, -1 if that is
// not limited: only OPTIONS and TRACE can be (RFC 9110 7.6.2).
func maxForwards(method string, h http.Header) int {
	if method != http.MethodOptions && method != http.MethodTrace {
		return -1
	}
	n, err := strconv.ParseUint(h.Get("Max-Forwards"), 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}
