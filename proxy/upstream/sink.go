package upstream

import (
	"net"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Sink takes the response to one request, on its way to the client. An
// [http1.Duplex] is one, and a [HTTP2Sink]. It is used by one goroutine at a time.
type Sink interface {
	http1.Receiver
	// Informational passes a 1xx response on, neither 100 nor 101. It comes before
	// Begin, or not at all.
	Informational(status int, f *http1.Fields)
	// SwitchProtocols answers 101 with these fields and gives the client's connection away:
	// what the client has sent behind its request is unread.
	SwitchProtocols(protocol string, f *http1.Fields) (c net.Conn, unread []byte, err error)
	// Committed reports whether some of the final response may have been sent.
	Committed() bool
}

// A Body is that of a request. It ends with io.EOF.
type Body interface {
	Read(p []byte) (int, error)
	// Stop ends reading, also a read that waits: nobody wants more of the body. It is
	// called by another goroutine than Read.
	Stop()
	// Trailer are the trailer fields, which are there when all has been read.
	Trailer() *http1.Fields
}
