package key

import (
	"fmt"
	"net/netip"
)

// A Request is what keys are read from. One that is also a Message has all
// sources.
type Request interface {
	// Header returns all values of the field with this canonical name.
	Header(name string) []string
	// Query returns all values of the query parameter.
	Query(name string) []string
	// Confused reports whether the request has a header field or a query parameter
	// that some server takes for the one at o, although it is called otherwise: see
	// FoldHeader and Names. For a field of a form it reports whether the request has a
	// body in which some server may find that, and in which nobody looks for it here.
	Confused(o Origin) bool
	// Param returns the value of the path's {parameter}, "" if it has none.
	Param(name string) string
	// Client returns the client's address, IPv6 already cut to its network.
	Client() netip.Prefix
}

// A Message is the rest of a request, for keys that are read from its host, its
// method or its body.
type Message interface {
	// Host returns the host that was asked for in the one spelling in which
	// routes are matched.
	Host() string
	// Method returns the method.
	Method() string
	// Body returns the body, which is read once and sent on unchanged. One that
	// is longer than may be kept is ErrBodyTooLarge.
	Body() (Body, error)
}

// A Body is what a request carries, whole. Keys do not change it.
type Body struct {
	Type  string // as the field Content-Type says, "" if there is none
	Bytes []byte
}

// message is r as a Message.
func message(r Request) (Message, error) {
	m, ok := r.(Message)
	if !ok {
		return nil, fmt.Errorf("%w: this request shows no host, method or body", ErrInvalid)
	}
	return m, nil
}
