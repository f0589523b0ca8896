package key

import (
	"fmt"
	"net/netip"
)

// A Request provides the data that keys are read from. One that also implements Message
// provides all sources.
type Request interface {
	// Header returns all values of the field with this canonical name.
	Header(name string) []string
	// Query returns all values of the query parameter.
	Query(name string) []string
	// Confused reports whether the request has a header field or query parameter that some
	// server could read as o, although it has another name: see FoldHeader and Names. For a
	// form field, it reports whether the request has a body in which some server could find
	// the field, but that is not read as a form here.
	Confused(o Origin) bool
	// Param returns the value of the path's {parameter}, "" if it has none.
	Param(name string) string
	// Client returns the client's address; for IPv6, its network.
	Client() netip.Prefix
}

// A Described is a Request with a descriptor, as Envoy sends it.
type Described interface {
	// Descriptor returns the value of the descriptor's entry, "" if it has none.
	Descriptor(name string) string
}

// A Message provides host, method and body of a request.
type Message interface {
	// Host returns the requested host in the normalized form that routes match.
	Host() string
	// Method returns the method.
	Method() string
	// Body returns the body, which is read once and forwarded unchanged. If it is too long
	// to be buffered, the error is ErrBodyTooLarge.
	Body() (Body, error)
}

// A Body is a complete request body. Extracting keys does not modify it.
type Body struct {
	Type  string // as the field Content-Type says, "" if there is none
	Bytes []byte
}

// message returns r as a Message.
func message(r Request) (Message, error) {
	m, ok := r.(Message)
	if !ok {
		return nil, fmt.Errorf("%w: this request shows no host, method or body", ErrInvalid)
	}
	return m, nil
}
