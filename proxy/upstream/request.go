package upstream

import (
	"net/netip"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Request is one request to be forwarded: what the client sent, and what was
// decided about it.
type Request struct {
	Method string
	// Path is the path that was matched, in the spelling that goes on the wire
	// (escaped), beginning with exactly one slash; or "*" for OPTIONS. A
	// target's own path is put in front of it.
	Path string
	// RawQuery is what the client sent after the question mark, byte for byte.
	// ForceQuery says that there is a question mark even if nothing follows it.
	RawQuery   string
	ForceQuery bool
	// Host is the authority that the client asked for; it is kept unless SetHost says
	// what the target is asked for.
	Host, SetHost string
	// Fields are all that the client sent. Forward takes out of them what is not sent
	// on, and does not use them any more when it has returned.
	Fields *http1.Fields
	// Length is how long the body is, as announced: 0 for none, -1 for unknown. Body is
	// nil if there is none. Content, unless nil, is what has been read of it before:
	// all, so that its trailer is known.
	Length       int64
	Body         Body
	BufferedBody []byte
	// Proto is the version the request was received with ("HTTP/1.1"), Scheme
	// "http" or "https".
	Proto, Scheme string
	// Client is who is asking, after trusted proxies are peeled off; Peer is
	// the other end of the connection. TrustedPeer says that what Peer says of
	// the client may be passed on.
	Client      netip.Addr
	Peer        netip.AddrPort
	TrustedPeer bool
	// Start is when the request was to be forwarded, if that has been read off the clock.
	Start time.Time
	// RequestID is sent as X-Request-Id unless empty.
	RequestID string
	// WebSocket says that this request may leave HTTP for WebSocket, from HTTP/1.1 to
	// HTTP/1.1. Messages after that are not seen by anybody here.
	WebSocket bool
	// Forwarded says that RFC 7239's Forwarded is sent beside X-Forwarded-*.
	Forwarded bool
	// HashBy is what requests have in common that shall go to one target of a
	// pool that is HashBy; "" for nothing.
	HashBy string
	// Set replaces request fields; one without values is taken out. Names are in
	// canonical form. It is not changed.
	Set map[string][]string
	// Reserved, unless nil, reports whether a field was decided by, or is the
	// operator's to set, under this name or one that a server may take for it. A
	// trailer field of such a name is not sent: some frameworks merge trailers into
	// the header.
	Reserved func(name string) bool
	// OnHeader, unless nil, is called once with status and header of the upstream's
	// final response, just before it is written. It may change fields, whose
	// hop-by-hop ones are gone.
	OnHeader func(status int, h *http1.Fields)
}

// expectsContinue reports whether the client waits for 100 Continue before it sends the body.
func (t *Request) expectsContinue() bool {
	return t.Proto != "HTTP/1.0" && t.Length != 0 && t.Fields.Has(http1.Expect)
}

// A ResultKind is how forwarding ended.
type ResultKind uint8

// The ways it can end.
const (
	OK                ResultKind = iota // the response was passed on whole
	ConnectFailed                       // no connection to the target could be made; it saw nothing
	ConnectTimeout                      // a connection could not be made in time; the target saw nothing
	Timeout                             // the target did not take the request or begin its response in time
	ClientGone                          // the client left before the response was whole
	BadRequest                          // the request, or its body, is not valid HTTP; answer 400
	BodyTimeout                         // the client's body did not come in time; answer 408
	BodyTooLarge                        // the client's body is longer than its limit; answer 413
	BadResponse                         // the response is not HTTP, or not one that was asked for
	ConnectionReset                     // the target closed the connection before it answered
	ResponseTruncated                   // the response began and was cut short; the client must see it cut
	NoTarget                            // the pool has no target that is available
	MaxForwards                         // Max-Forwards is 0: the caller answers OPTIONS or TRACE by itself
	LoopDetected                        // the request has passed this process before
	QueueFull                           // all targets are full, and so is the queue, or the wait in it was too long
)

// A Result is what came of a request.
type Result struct {
	Kind ResultKind
	// Status is what the upstream answered, 0 if it did not.
	Status int
	// Err says more for the log; it is nil only when Kind is OK.
	Err error
	// HeaderSent says that the response's header is already on its way to the client.
	// When Kind is not OK the caller must then cut the connection, or the stream;
	// otherwise it answers by itself.
	HeaderSent bool
	// Target is the URL of the target that was asked last, "" if none was.
	Target string
	// Retries is how many targets were asked before that one.
	Retries int
	// FirstByte is how long the final response's header took.
	FirstByte time.Duration
}
