package upstream

import (
	"net"
	"net/netip"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Request is a request to be forwarded, with the parameters that the proxy has
// determined for it.
type Request struct {
	Method string
	// Path is the escaped path to be sent. It begins with exactly one slash, or is "*"
	// for OPTIONS.
	Path string
	// RawQuery is the query as received. ForceQuery reports that the target has a
	// question mark even if RawQuery is empty.
	RawQuery   string
	ForceQuery bool
	// Host is the authority of the client's request. It is forwarded unless SetHost
	// replaces it.
	Host, SetHost string
	// Fields are the fields of the client's request. Forward drops those that are not
	// forwarded.
	Fields *http1.Fields
	// Length is the announced length of the body: 0 for none, -1 for unknown. Body is
	// nil if there is none. BufferedBody, if it is not nil, is the whole body, which
	// was read before.
	Length       int64
	Body         Body
	BufferedBody []byte
	// Proto is the version of the client's request ("HTTP/1.1"), Scheme "http" or
	// "https".
	Proto, Scheme string
	// Client is the address of the client behind trusted proxies; Peer is the remote
	// address of the connection. If TrustedPeer is set, the forwarded fields that the
	// peer has sent are kept.
	Client      netip.Addr
	Peer        netip.AddrPort
	TrustedPeer bool
	// Start is the time when forwarding starts. If it is zero, Forward reads the clock.
	Start time.Time
	// RequestID is sent as X-Request-Id, unless it is empty.
	RequestID string
	// WebSocket allows an upgrade to WebSocket, to HTTP/1.1. The messages after that are
	// not inspected.
	WebSocket bool
	// Forwarded adds the field Forwarded (RFC 7239) to X-Forwarded-*.
	Forwarded bool
	// Stripe is the stripe of the processor, in which the request is counted as in progress; see
	// NewGroups.
	Stripe int
	// HashBy is the value by which a pool with the balance HashBy selects a target; ""
	// for none.
	HashBy string
	// Set replaces request fields. A field without values is removed. Names are in
	// canonical form. It is not modified.
	Set map[string][]string
	// Reserved, if it is set, reports whether a decision was based on a field with this
	// name, or the operator sets it, or some servers confuse the name with such a one.
	// A trailer field with such a name is dropped, because some frameworks merge
	// trailer fields into the header.
	Reserved func(name string) bool
	// OnHeader, if it is set, is called once with the status and the header of the
	// final response, before it is sent. It may modify the fields. The hop-by-hop
	// fields have been dropped.
	OnHeader func(status int, h *http1.Fields)
	// OnBody, if OnHeader sets it, is called with each part of the body of the response before
	// it is sent. The part is valid until OnBody returns, and must not be changed.
	OnBody func(part []byte)

	forwarding *forwarding // the state of Forward; kept by Reset
}

// Reset clears r for the next request. It keeps the memory that Forward uses.
func (r *Request) Reset() { *r = Request{forwarding: r.forwarding} }

// expectsContinue reports whether the client waits for 100 Continue before it sends the body.
func (r *Request) expectsContinue() bool {
	return r.Proto != "HTTP/1.0" && r.Length != 0 && r.Fields.Has(http1.Expect)
}

// A ResultKind is the outcome of forwarding a request.
type ResultKind uint8

// The possible outcomes.
const (
	OK                ResultKind = iota // the whole response was forwarded
	ConnectFailed                       // no connection to a target; nothing was sent
	ConnectTimeout                      // no connection to a target within the timeout; nothing was sent
	Timeout                             // the target did not accept the request or begin the response in time
	ClientGone                          // the client was gone before the response was complete
	BadRequest                          // the request or its body is invalid; respond with 400
	BodyTimeout                         // the client did not send its body in time; respond with 408
	BodyTooLarge                        // the client's body exceeds its limit; respond with 413
	BadResponse                         // the response is invalid or was not requested
	ConnectionReset                     // the target closed the connection before it responded
	ResponseTruncated                   // the response was truncated after its head; this must be visible to the client
	NoTarget                            // no target is healthy
	MaxForwards                         // Max-Forwards is 0: the caller must respond to OPTIONS or TRACE itself
	LoopDetected                        // the request has passed through this process before
	QueueFull                           // all targets are at MaxConnections, and the queue is full or the wait too long
)

// A Result is the outcome of Forward.
type Result struct {
	Kind ResultKind
	// Status is the status of the upstream's response, or 0.
	Status int
	// Err is the error for the log. It is nil only if Kind is OK.
	Err error
	// HeaderSent reports that the head of the response was sent to the client. If Kind
	// is not OK, the caller must then abort the connection or stream; otherwise it must
	// send a response.
	HeaderSent bool
	// Sent reports that a target may have received a part of the request. It is set only
	// if no response has arrived.
	Sent bool
	// Target is the URL of the last selected target, or "".
	Target string
	// Retries is the number of targets that were tried before that one.
	Retries int
	// FirstByte is the time until the head of the final response.
	FirstByte time.Duration
}

// A Sink receives the response to one request and sends it to the client.
// [http1.Duplex] is a Sink. Only one goroutine uses it at a time.
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
