package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/key"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// The methods of this file implement key.Message and routing.Message, by which packages key and
// route read the exchange.

// Header returns all values of a field.
func (x *exchange) Header(name string) []string { return x.in.header.Values(name) }

// Query returns all values of a query parameter. An ambiguous query has no parameters; extract
// refuses the request before they are used.
func (x *exchange) Query(name string) []string { return x.extracted.query[name] }

// ParsedQuery returns the parameters of the query. It is parsed once.
func (x *exchange) ParsedQuery() (url.Values, error) {
	if x.extracted.query != nil {
		return x.extracted.query, nil
	}
	query, err := routing.ParseQuery(x.request.RawQuery)
	if err != nil {
		return nil, err
	}
	x.extracted.query = query
	return query, nil
}

// Param returns a parameter of the path, decoded.
func (x *exchange) Param(name string) string { return x.request.Param(name) }

// Client returns the client's network, by which limits count.
func (x *exchange) Client() netip.Prefix { return x.client.network }

// Host returns the host of the request in its canonical form.
func (x *exchange) Host() string { return x.request.Host }

// Method returns the method.
func (x *exchange) Method() string { return x.request.Method }

// Body returns the body, which is read once for all keys.
func (x *exchange) Body() (key.Body, error) {
	if x.extracted.body == nil {
		maxBytes := x.route.MaxBody
		if maxBytes == 0 {
			maxBytes = body.DefaultMax
		}
		x.extracted.body = new(content)
		x.extracted.body.bytes, x.extracted.body.err = x.in.body.readAll(maxBytes)
	}
	kind := ""
	if types := x.Header("Content-Type"); len(types) > 0 {
		kind = types[0]
	}
	return key.Body{Type: kind, Bytes: x.extracted.body.bytes}, x.extracted.body.err
}

// A content is a body, or the error of reading it.
type content struct {
	bytes []byte
	err   error
}

// errTooLong reports that the announced length of a body exceeds the maximum of its route.
var errTooLong = errors.New("body too large")

// checkBodySize refuses a request whose announced body exceeds the maximum of its route, before any
// permit is taken. A body without an announced length is measured while it is forwarded.
func (x *exchange) checkBodySize() error {
	if maxBytes := x.route.MaxBody; maxBytes > 0 && x.in.length > maxBytes {
		return tooLong(maxBytes)
	}
	return nil
}

func tooLong(maxBytes int64) error {
	return fmt.Errorf("%w: at most %d bytes are allowed here", errTooLong, maxBytes)
}

// HasForm reports whether x has a body that some server parses as a form. Rack parses the body of a
// POST without Content-Type as one.
func (x *exchange) HasForm() bool {
	if x.in.length == 0 {
		return false
	}
	types := x.Header("Content-Type")
	for _, kind := range types {
		kind = strings.ToLower(kind)
		if strings.Contains(kind, "urlencoded") || strings.Contains(kind, "multipart") {
			return true
		}
	}
	return strings.EqualFold(x.request.Method, "POST") && strings.Join(types, "") == ""
}
