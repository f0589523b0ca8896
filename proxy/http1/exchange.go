package http1

import (
	"net"
	"net/netip"
	"time"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// An Exchange is one request and its response. Only the goroutine that runs the Handler
// may use it, except for methods that are documented as safe for concurrent use.
type Exchange struct {
	Request
	// BeforeEnd, if it is set, is called once before the last bytes of the final
	// response are sent, for example to log the request before the client sees the end
	// of the response. flush sends the part of the response that has been written so
	// far, if that is not the whole response.
	BeforeEnd func(flush func())
	// State belongs to the handler. It is kept while the Exchange is reused, for requests
	// of any client, so that a handler needs no pool of its own.
	State any

	conn *conn
	in   input
	out  Head // the response, or the part of it that has not been sent; its buffer is that of a call until the call is answered
	body Body
	exchangeState

	call       *Call // a call that was released, for the next one; nil if there is none
	stage      responseStage
	hadRequest bool // it has served a request on this connection
	vector     [3][]byte
	lineEnd    [2]byte
	buffers    net.Buffers
}

// An exchangeState is the part of an Exchange that is zeroed for each request. It is a
// struct of its own so that one assignment clears it, while buffers are kept.
type exchangeState struct {
	headStarted time.Duration // when the first read of an incomplete head began; 0 if the head came with the first read
	status      int
	framing     Framing // of the response
	bytesLeft   int64   // bytes of the response body still to be written, if its length is known
	bodySent    int64   // bytes of the response body that were written
	closeConn   bool    // the connection is closed after this response
	continued   bool    // 100 Continue was sent
	aborted     bool
	hijacked    bool
	err         error // why writing to the client failed
	uploading   bool  // another goroutine reads the request body
	waited      bool  // a call waited for an upstream
}

// A responseStage is the progress of a response.
type responseStage uint8

const (
	responseNone responseStage = iota
	responseHead               // the head is being built; nothing has been sent
	responseBody               // the head is complete and may have been sent
	responseDone               // the response is complete
)

// resetForConn clears x for use on another connection. It keeps the memory for fields.
func (x *Exchange) resetForConn() {
	x.reset()
	x.conn, x.in.from, x.hadRequest = nil, nil, false
}

// reset clears x for the next request on the same connection.
func (x *Exchange) reset() {
	x.Request.Reset()
	x.body.reset()
	x.BeforeEnd, x.exchangeState, x.stage, x.hadRequest = nil, exchangeState{}, responseNone, false
}

// Body returns the body of the request, or nil if there is none. Reading it sends 100
// Continue if the client waits for that.
func (x *Exchange) Body() *Body {
	if x.Request.Framing.Kind == NoBody {
		return nil
	}
	return &x.body
}

// NetConn returns the client connection, for its addresses and TLS state. The caller
// must not read from it or write to it.
func (x *Exchange) NetConn() net.Conn { return x.conn.net }

// Peer returns the remote address of the connection. It is the zero AddrPort for a unix
// socket.
func (x *Exchange) Peer() netip.AddrPort {
	c := x.conn
	if !c.peerKnown {
		c.peerKnown, c.peer = true, peerOf(c.net)
	}
	return c.peer
}

func peerOf(c net.Conn) netip.AddrPort {
	switch at := c.RemoteAddr().(type) {
	case *net.TCPAddr:
		return at.AddrPort()
	case *net.UnixAddr:
		return netip.AddrPort{}
	default:
		peer, _ := netip.ParseAddrPort(at.String())
		return peer
	}
}

// ConnState returns a variable that belongs to the handler. It is kept as long as the
// client connection, also while that is idle, for what is the same for all its requests.
func (x *Exchange) ConnState() *any { return &x.conn.handlerState }

// Secure reports whether the client connection uses TLS.
func (x *Exchange) Secure() bool { return x.conn.tls }

// IsFirst reports whether this is the first request of its connection.
func (x *Exchange) IsFirst() bool { return x.conn.firstRequest }

// Status returns the status of the final response, or 0 if none has been begun.
func (x *Exchange) Status() int { return x.status }

// BodyBytesSent returns the number of bytes of the response body that were written.
func (x *Exchange) BodyBytesSent() int64 { return x.bodySent }

// Committed reports whether a part of the final response may have been sent, so that it
// can no longer be replaced by another one.
func (x *Exchange) Committed() bool { return x.stage >= responseBody }

// SetConnectionClose closes the connection after this response, which gets a
// Connection: close field. It must be called before StartBody, Send or Relay.
func (x *Exchange) SetConnectionClose() { x.closeConn = true }

// Abort closes the connection so that the client can detect that the response is
// incomplete. Nothing more is sent.
func (x *Exchange) Abort() { x.aborted = true }

// peerState returns the current state of the client's end of the connection. It costs
// one system call.
func (x *Exchange) peerState() socket.State { return socket.StateOf(x.conn.socket) }
