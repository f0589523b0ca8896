package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
)

// ErrExplain reports that what is to be explained is no request.
var ErrExplain = errors.New("no request")

// exchange makes an exchange of the request, as a downstream does.
func (r ExplainRequest) exchange() (*exchange, error) {
	if !httpguts.ValidHeaderFieldName(r.Method) {
		return nil, fmt.Errorf("%w: %q is not a method; write for example GET or POST", ErrExplain, r.Method)
	}
	scheme, authority, target, err := splitURL(r.URL)
	if err != nil {
		return nil, err
	}
	header, err := r.fields()
	if err != nil {
		return nil, err
	}
	x := newExchange().(*exchange)
	x.request.Method, x.in.scheme, x.request.Proto, x.request.RequestTarget = r.Method, cmp.Or(scheme, "http"), "HTTP/1.1", target
	host, _ := header.Value(http1.Host)
	x.request.HostField = cmp.Or(authority, host, "localhost")
	header.Del("Host")
	x.in.header, x.in.length = header, int64(len(r.Body))
	x.in.body = literalBody(r.Body)
	x.in.peer = netip.AddrPortFrom(r.Client, 0)
	if !r.Client.IsValid() {
		x.in.peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	}
	x.id = "REQUEST-ID"
	lines := byName(header)
	x.in.unasked = unasked(r.Method, lines)
	for name := range lines {
		if !key.IsPlainHeader(name) {
			x.in.odd = append(x.in.odd, name)
		}
	}
	return x, nil
}

// fields are those of the header under canonical names.
func (r ExplainRequest) fields() (*http1.Fields, error) {
	h := new(http1.Fields)
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("%w: %q is not a header field name; write for example X-Phone", ErrExplain, name)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, fmt.Errorf("%w: the value of %s has a line break or a control character", ErrExplain, name)
			}
			h.Add(http.CanonicalHeaderKey(name), strings.Trim(v, " \t"))
		}
	}
	return h, nil
}

// byName are the values of fields under canonical names.
func byName(f *http1.Fields) map[string][]string {
	h := map[string][]string{}
	for line := range f.All() {
		h[line.Name] = append(h[line.Name], line.Value)
	}
	return h
}

// splitURL takes a URL apart and changes no byte of path and query, which is what has
// to be explained.
func splitURL(s string) (scheme, authority, target string, err error) {
	switch {
	case s == "":
		return "", "", "", fmt.Errorf("%w: an empty URL; write for example http://localhost/v1/search, or /v1/search", ErrExplain)
	case strings.ContainsAny(s, " \t\r\n"):
		return "", "", "", fmt.Errorf("%w: the URL %q has a space; write %%20", ErrExplain, s)
	case strings.Contains(s, "#"):
		return "", "", "", fmt.Errorf("%w: the URL %q has a fragment, which no client sends; leave out what begins with #", ErrExplain, s)
	case s[0] == '/' || s == "*":
		return "", "", s, nil
	}
	scheme, rest, absolute := strings.Cut(s, "://")
	scheme = strings.ToLower(scheme)
	if !absolute || scheme != "http" && scheme != "https" {
		return "", "", "", fmt.Errorf("%w: %q is not a URL; write for example http://localhost/v1/search, or /v1/search", ErrExplain, s)
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority, target = rest[:end], rest[end:]
	if authority == "" {
		return "", "", "", fmt.Errorf("%w: the URL %q has no host", ErrExplain, s)
	}
	if !strings.HasPrefix(target, "/") {
		target = "/" + target // as clients send it
	}
	return scheme, authority, target, nil
}

// A literalBody is a body in memory.
type literalBody string

// readAll implements carrier.
func (b literalBody) readAll(most int64) ([]byte, error) {
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, most)
	}
	return []byte(b), nil
}
