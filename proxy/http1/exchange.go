package http1

import (
	"net"
	"net/netip"
	"time"
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
	out  Head // the response, or what has not been sent of it; its buffer is that of a call until the call is answered
	body Body
	call *Call // a call that was released, for the next one; nil if there is none
	exchangeState
}

// An exchangeState is what an Exchange holds of one request besides its parts.
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

	progress   responseStage
	hadRequest bool // it has served a request on this connection
	vector     [3][]byte
	lineEnd    [2]byte
	buffers    net.Buffers
}

// A responseStage is the progress of a response.
type responseStage uint8

const (
	responseNone responseStage = iota
	responseHead               // the head is being built; nothing has been sent
	responseBody               // the head is complete and may have been sent
	responseDone               // the response is complete
)

// reset makes e the exchange of no request. It names all that is kept for the next one, which is of
// another client if the connection, the input and the output are taken away.
func (e *Exchange) reset() {
	fields, trailer := e.Request.Fields, e.body.trailer
	e.Request = Request{} // one after the other, and not literals with what is kept: see Call.reset
	e.body = Body{}
	e.exchangeState = exchangeState{}
	e.BeforeEnd, e.Request.Fields, e.body.trailer = nil, fields, trailer
	e.Request.Fields.Reset()
	e.body.trailer.Reset()
}

// Body returns the body of the request, or nil if there is none. Reading it sends 100
// Continue if the client waits for that.
func (e *Exchange) Body() *Body {
	if e.Request.Framing.Kind == NoBody {
		return nil
	}
	return &e.body
}

// NetConn returns the client connection, for its addresses and TLS state. The caller
// must not read from it or write to it.
func (e *Exchange) NetConn() net.Conn { return e.conn.net }

// Peer returns the remote address of the connection. It is the zero AddrPort for a unix
// socket.
func (e *Exchange) Peer() netip.AddrPort {
	c := e.conn
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

// Secure reports whether the client connection uses TLS.
func (e *Exchange) Secure() bool { return e.conn.tls }

// BodyBytesSent returns the number of bytes of the response body that were written.
func (e *Exchange) BodyBytesSent() int64 { return e.bodySent }

// Committed reports whether a part of the final response may have been sent, so that it
// can no longer be replaced by another one.
func (e *Exchange) Committed() bool { return e.progress >= responseBody }

// Abort closes the connection so that the client can detect that the response is
// incomplete. Nothing more is sent.
func (e *Exchange) Abort() { e.aborted = true }

// LooksGone reports whether the client is gone, by Server.HalfClose and what the socket shows at this
// moment. It costs one system call.
func (e *Exchange) LooksGone() bool { return e.conn.looksGone(e.conn.socket.State()) }
