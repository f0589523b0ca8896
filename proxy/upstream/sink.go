package upstream

import (
	"net"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Sink receives the response to one request and sends it to the client.
// [http1.Duplex] and [HTTP2Sink] are Sinks. Only one goroutine uses it at a time.
type Sink interface {
	http1.Receiver
	// Informational forwards a 1xx response other than 100 and 101. It is called only
	// before Begin.
	Informational(status int, f *http1.Fields)
	// SwitchProtocols sends 101 with these fields and hands over the client connection.
	// unread holds bytes that the client has sent after its request.
	SwitchProtocols(protocol string, f *http1.Fields) (c net.Conn, unread []byte, err error)
	// Committed reports whether a part of the final response may have been sent.
	Committed() bool
}

// A Body is a request body. It ends with io.EOF.
type Body interface {
	Read(p []byte) (int, error)
	// Stop makes a pending read return, because the rest of the body is not needed. It
	// is called by another goroutine than the one that reads.
	Stop()
	// Trailer returns the trailer fields, which are available at the end of the body.
	Trailer() *http1.Fields
}
