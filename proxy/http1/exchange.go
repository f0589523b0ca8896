package http1

import (
	"net"
	"net/netip"
	"time"
)

// An Exchange is one request and its response. It belongs to the goroutine that
// its Handler was called on, unless a method says that it is shared.
type Exchange struct {
	Request
	// BeforeEnd, unless nil, is called once, before what ends the final response is
	// sent. What it is given sends what there is of the response so far, if it is
	// not all.
	BeforeEnd func(flush func())

	conn *conn
	in   input
	out  Head // what has been made of the response and not been sent
	body Body
	exchangeState

	stage      responseStage
	hadRequest bool // for a request of this connection
	vector     [3][]byte
	lineEnd    [2]byte
	buffers    net.Buffers
}

// An exchangeState is how far an exchange has come. It is apart from what is kept for the
// next one, so that all of it is zeroed in place.
type exchangeState struct {
	headStarted time.Duration // when the head turned out not to have come at once; 0 if it did
	status      int
	framing     Framing // of the response
	bytesLeft   int64   // of its body, if it has a length
	bodySent    int64   // of its body
	closeConn   bool    // the connection ends after this response
	continued   bool    // 100 Continue was sent
	aborted     bool
	hijacked    bool
	err         error // why the client cannot be written to
	uploading   bool  // another goroutine reads the body
}

// A responseStage is how far a response has come.
type responseStage uint8

const (
	responseNone responseStage = iota
	responseHead               // the head is being made; nothing of it has been sent
	responseBody               // the head is whole and maybe sent
	responseDone               // whole
)

// resetForConn makes x ready for another connection, and keeps its memory.
func (x *Exchange) resetForConn() {
	x.reset()
	x.conn, x.in.from, x.hadRequest = nil, nil, false
}

// reset makes x ready for the next request of the same connection.
func (x *Exchange) reset() {
	x.Request.Reset()
	x.body.reset()
	x.BeforeEnd, x.exchangeState, x.stage, x.hadRequest = nil, exchangeState{}, responseNone, false
}

// Body is the body of the request, nil if it has none. Reading it tells a client
// that waits for that to go on.
func (x *Exchange) Body() *Body {
	if x.Request.Framing.Kind == NoBody {
		return nil
	}
	return &x.body
}

// NetConn is the connection, to ask it who the client is. It must not be used to
// read or write.
func (x *Exchange) NetConn() net.Conn { return x.conn.net }

// Peer is the other end of the connection as that says, the zero AddrPort for a
// socket of this machine.
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

// Secure reports whether the client speaks TLS.
func (x *Exchange) Secure() bool { return x.conn.tls }

// IsFirst reports whether this is the first request of its connection.
func (x *Exchange) IsFirst() bool { return x.conn.firstRequest }

// Status is the status of the final response so far, 0 for none.
func (x *Exchange) Status() int { return x.status }

// BodyBytesSent is how many bytes of a body the client was sent.
func (x *Exchange) BodyBytesSent() int64 { return x.bodySent }

// Committed reports whether some of the final response may have been sent, so that
// no other can be given.
func (x *Exchange) Committed() bool { return x.stage >= responseBody }

// SetConnectionClose lets the connection end after this response. It must come before the
// head of the response is whole.
func (x *Exchange) SetConnectionClose() { x.closeConn = true }

// Abort cuts the connection, so that the client can tell that the response is
// not whole. Nothing more is sent.
func (x *Exchange) Abort() { x.aborted = true }

// PeerState reports, at the price of a system call, whether the client has left:
// whether it has reset the connection, or only will send no more.
func (x *Exchange) PeerState() PeerState { return peerState(x.conn.socket) }
