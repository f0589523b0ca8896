package upstream

import (
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// A Request is what was decided about one request before it is forwarded.
type Request struct {
	// Path is the path that was matched, in the spelling that goes on the wire
	// (escaped), beginning with exactly one slash; or "*" for OPTIONS. A
	// target's own path is put in front of it.
	Path string
	// RawQuery is what the client sent after the question mark, byte for byte.
	RawQuery string
	// Host is the authority that the client asked for; it is kept unless As says
	// what the target is asked for.
	Host, SetHost string
	// Proto is the version the request was received with ("HTTP/1.1"), Scheme
	// "http" or "https".
	Proto, Scheme string
	// Client is who is asking, after trusted proxies are peeled off; Peer is
	// the other end of the connection. TrustedPeer says that what Peer says of
	// the client may be passed on.
	Client      netip.Addr
	Peer        netip.AddrPort
	TrustedPeer bool
	// RequestID is sent as X-Request-Id unless empty.
	RequestID string
	// WebSocket says that this request may leave HTTP for WebSocket. Messages
	// after that are not seen by anybody here.
	WebSocket bool
	// Forwarded says that RFC 7239's Forwarded is sent beside X-Forwarded-*.
	Forwarded bool
	// HashBy is what requests have in common that shall go to one target of a
	// pool that is HashBy; "" for nothing.
	HashBy string
	// Set replaces request fields; one without values is taken out. Names are in
	// canonical form. It is not changed.
	Set http.Header
	// Reserved, unless nil, reports whether a field was decided by, or is the
	// operator's to set, under this name or one that a server may take for it. A
	// trailer field of such a name is not sent: some frameworks merge trailers into
	// the header.
	Reserved func(name string) bool
	// OnHeader, unless nil, is called once with status and header of the upstream's
	// final answer, just before it is written. It may change fields. Fields
	// that the caller has already put into the response stay beside them.
	OnHeader func(status int, h Header)
}

// A Header is that of an answer, to be changed. Names are in canonical form.
type Header interface {
	Fields
	// Set replaces a field by one line, and Add adds a line.
	Set(name, value string)
	Add(name, value string)
	Del(name string)
}

// A netHeader is a Header as net/http knows it.
type netHeader struct{ http.Header }

func (h netHeader) Set(name, value string) { h.Header[name] = []string{strings.Clone(value)} }

func (h netHeader) addField(name string, value []byte) { h.Header.Add(name, string(value)) }

func (h netHeader) Add(name, value string) {
	h.Header[name] = append(h.Header[name], strings.Clone(value))
}

// A Kind is how a trip ended.
type Kind uint8

// The ways a trip can end.
const (
	OK             Kind = iota // the answer was passed on whole
	Connect                    // no connection to the target could be made; it saw nothing
	ConnectTimeout             // a connection could not be made in time; the target saw nothing
	Timeout                    // the target did not take the request or begin its answer in time
	ClientGone                 // the client left before the answer was whole
	BadRequest                 // the request, or its body, is not valid HTTP; answer 400
	BodyTimeout                // the client's body did not come in time; answer 408
	BodyTooLarge               // the client's body is longer than its limit; answer 413
	BadResponse                // the answer is not HTTP, or not one that was asked for
	Reset                      // the target closed the connection before it answered
	BodyCut                    // the answer began and was cut short; the client must see it cut
	NoTarget                   // the pool has no target that is fit to be asked
	MaxForwards                // Max-Forwards is 0: the caller answers OPTIONS or TRACE by itself
	Loop                       // the request has passed this process before
	QueueFull                  // all targets are full, and so is the queue, or the wait in it was too long
)

// A Result is what came of a trip.
type Result struct {
	Kind Kind
	// Status is what the upstream answered, 0 if it did not.
	Status int
	// Err says more for the log; it is nil only when Kind is OK.
	Err error
	// Wrote says that the answer's header is already on its way to the client.
	// When Kind is not OK the caller must then cut the connection (panic with
	// http.ErrAbortHandler); otherwise it answers by itself.
	Wrote bool
	// Target is the URL of the target that was asked last, "" if none was.
	Target string
	// Retries is how many targets were asked before that one.
	Retries int
	// FirstByte is how long the final answer's header took.
	FirstByte time.Duration
}
