package proxy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
)

// ErrExplain reports that the request to explain is not valid.
var ErrExplain = errors.New("not a valid request")

// SetContentType adds the Content-Type of the body if the request has a body and none: JSON if it is JSON,
// otherwise that of a form, as curl does.
func (r *ExplainRequest) SetContentType() {
	if r.Body == "" || len(r.Header["Content-Type"]) > 0 {
		return
	}
	if r.Header == nil {
		r.Header = map[string][]string{}
	}
	r.Header["Content-Type"] = []string{"application/x-www-form-urlencoded"}
	if json.Valid([]byte(r.Body)) {
		r.Header["Content-Type"] = []string{"application/json"}
	}
}

// exchange returns an exchange for the request, as a downstream would.
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
	x.request.Method, x.in.scheme, x.request.Proto, x.request.RequestTarget = r.Method, scheme, "HTTP/1.1", target
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
	x.in.notPreflight = notPreflightFields(r.Method, lines)
	for name := range lines {
		if !key.IsPlainHeader(name) {
			x.in.notPlain = append(x.in.notPlain, name)
		}
	}
	return x, nil
}

// fields returns the header fields with canonical names.
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

// byName returns the values of fields by canonical name.
func byName(f *http1.Fields) map[string][]string {
	h := map[string][]string{}
	for line := range f.All() {
		h[line.Name] = append(h[line.Name], line.Value)
	}
	return h
}

// splitURL splits a URL without changing a byte of its path and query.
func splitURL(s string) (scheme, authority, target string, err error) {
	switch {
	case s == "":
		return "", "", "", fmt.Errorf("%w: an empty URL; write for example http://localhost/v1/search, or /v1/search", ErrExplain)
	case strings.ContainsAny(s, " \t\r\n"):
		return "", "", "", fmt.Errorf("%w: the URL %q has a space; write %%20", ErrExplain, s)
	case strings.Contains(s, "#"):
		return "", "", "", fmt.Errorf("%w: the URL %q has a fragment, which clients do not send; remove the part from #", ErrExplain, s)
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

// readAll implements bodyReader.
func (b literalBody) readAll(maxBytes int64) ([]byte, error) {
	if int64(len(b)) > maxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, maxBytes)
	}
	return []byte(b), nil
}
