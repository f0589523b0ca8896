package http1

import (
	"net"
	"net/netip"
	"strconv"
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
		c.peerKnown, c.peer = true, PeerOf(c.net)
	}
	return c.peer
}

// PeerOf returns the remote address of a connection. It is the zero AddrPort for a unix socket.
func PeerOf(c net.Conn) netip.AddrPort {
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

// Begin begins the head of the final response and returns it, so that fields can be
// added. A response that was begun before and not sent is dropped. The fields
// Connection, Content-Length and Transfer-Encoding are added automatically, and Date if
// it is missing.
func (e *Exchange) Begin(status int) *Head {
	if e.progress >= responseBody {
		e.out.err = ErrResponseState
		return &e.out
	}
	e.out.reset(&e.conn.server.buffers)
	e.out.startResponse(status)
	e.status, e.progress = status, responseHead
	return &e.out
}

// Send completes the response with this body, in one write. If the method or the status
// does not allow a body, only its length is sent.
func (e *Exchange) Send(body []byte) error {
	if err := e.StartBody(Framing{FixedLength, int64(len(body))}); err != nil {
		return err
	}
	if e.framing.Kind == FixedLength {
		if _, err := e.Write(body); err != nil {
			return err
		}
	}
	return e.End()
}

// StartBody completes the head of the response. The body follows with Write and End.
// f.Length is the length of the body, or negative if it is unknown; f.Kind is ignored
// except for NoBody and FixedLength, because the framing also depends on the request.
// Nothing is sent yet.
func (e *Exchange) StartBody(f Framing) error {
	switch {
	case e.progress != responseHead || e.status < 200:
		return ErrResponseState
	case e.out.err != nil:
		e.progress = responseNone
		return e.out.err
	}
	e.framing = outgoingFraming(message{minor: e.Minor, method: e.Method(), status: e.status}, f)
	e.bytesLeft = e.framing.Length
	e.closeConn = e.closeConn || e.Close || e.framing.Kind == UntilClose || e.conn.server.keepAlivesDisabled.Load() ||
		e.uploading || e.notWorthDraining()
	if !e.out.hasDate {
		e.out.add("Date", e.conn.server.date.last())
	}
	e.out.addFraming(e.framing)
	switch {
	case e.closeConn:
		e.out.add("Connection", "close")
	case e.Minor == 0:
		e.out.add("Connection", "keep-alive")
	}
	e.out.end()
	e.progress = responseBody
	e.conn.startResponse()
	return nil
}

// beforeEnd calls BeforeEnd for a response of which a part can be sent before the end;
// beforeWholeEnd for one that is sent as a whole.
func (e *Exchange) beforeEnd() {
	if before := e.BeforeEnd; before != nil {
		e.BeforeEnd = nil
		before(e.flushPartial)
	}
}

func (e *Exchange) beforeWholeEnd() {
	if before := e.BeforeEnd; before != nil {
		e.BeforeEnd = nil
		before(func() {})
	}
}

// flushPartial sends the part of an incomplete response that has been written.
func (e *Exchange) flushPartial() { _ = e.Flush() } // the error stays in x.err

// notWorthDraining reports whether the connection should be closed instead of reading
// the rest of the request body: the rest is long, cannot be read, or the client waits
// for 100 Continue before it sends it.
func (e *Exchange) notWorthDraining() bool {
	b := e.Body()
	if b == nil || b.done() {
		return false
	}
	return b.err != nil || e.Expects() && !e.continued || b.bytesLeft > maxDrained
}

// Write writes a part of the response body. Small writes are buffered until Flush or
// End.
func (e *Exchange) Write(p []byte) (int, error) {
	switch {
	case e.progress != responseBody:
		return 0, ErrResponseState
	case e.err != nil:
		return 0, e.err
	case len(p) == 0:
		return 0, nil
	}
	end := ""
	switch e.framing.Kind {
	case NoBody:
		return len(p), nil
	case FixedLength:
		if int64(len(p)) > e.bytesLeft {
			return 0, ErrBodyTooLong
		}
		if e.bytesLeft -= int64(len(p)); e.bytesLeft == 0 {
			e.beforeEnd()
		}
	case Chunked:
		end = "\r\n"
		e.out.buf = strconv.AppendInt(e.out.buf, int64(len(p)), 16)
		e.out.buf = append(e.out.buf, end...)
	}
	e.bodySent += int64(len(p))
	if len(e.out.buf)+len(p)+len("\r\n") > cap(e.out.buf) {
		return len(p), e.writeThrough(p, end)
	}
	e.out.buf = append(append(e.out.buf, p...), end...)
	return len(p), nil
}

// writeThrough sends the buffered bytes, p, and the end of its chunk. It avoids copying p if the
// connection is a TCP socket.
func (e *Exchange) writeThrough(p []byte, end string) error {
	e.conn.beginWrite()
	switch to, plain := e.conn.net.(*net.TCPConn); {
	case plain:
		e.vector = [3][]byte{e.out.buf, p, append(e.lineEnd[:0], end...)}
		e.buffers = e.vector[:]
		e.conn.writeGuard.begin()
		_, e.err = e.buffers.WriteTo(to)
		e.conn.writeGuard.end()
		e.vector = [3][]byte{}
	case len(e.out.buf) == 0 && end == "":
		e.err = e.conn.write(p)
	default:
		e.out.buf = append(append(e.out.buf, p...), end...)
		e.err = e.conn.write(e.out.buf)
	}
	e.out.buf = e.out.buf[:0]
	return e.err
}

// Flush sends the buffered bytes.
func (e *Exchange) Flush() error {
	if len(e.out.buf) == 0 || e.err != nil || e.progress < responseBody {
		return e.err
	}
	e.conn.beginWrite()
	e.err = e.conn.write(e.out.buf)
	e.out.buf = e.out.buf[:0]
	return e.err
}

// End completes the response. What is buffered is sent when the handler has returned, so
// that a client that has read the whole response can rely on the handler's effects. If the
// body is shorter than announced, it returns ErrBodyTooShort, and the connection is aborted.
func (e *Exchange) End() error { return e.EndWith(nil) }

// EndWith is End with trailer fields. They are sent only if the body is chunked. Fields
// that are not allowed in a trailer section are dropped.
func (e *Exchange) EndWith(trailer *Fields) error {
	switch {
	case e.progress != responseBody:
		return ErrResponseState
	case e.framing.Kind == FixedLength && e.bytesLeft > 0:
		return ErrBodyTooShort
	case e.framing.Kind == NoBody, e.framing.Kind == FixedLength:
		e.beforeWholeEnd() // does nothing if Write has called BeforeEnd for the last piece of a body
	default:
		e.beforeEnd()
	}
	if e.framing.Kind == Chunked {
		e.out.buf = append(e.out.buf, lastChunk...)
		if trailer != nil {
			trailer.DropForbiddenTrailers()
			e.out.AddFields(trailer)
		}
		e.out.end()
	}
	e.progress = responseDone
	return nil
}

// Interim begins a 1xx response, which SendInterim sends. There can be several of them
// before Begin. A client of HTTP/1.0 gets none.
func (e *Exchange) Interim(status int) *Head {
	if e.progress >= responseHead { // the buffer holds a part of the final response
		e.out.err = ErrResponseState
		return &e.out
	}
	e.out.reset(&e.conn.server.buffers)
	e.out.startResponse(status)
	if status >= 200 || status == 101 {
		e.out.err = ErrResponseState
	}
	return &e.out
}

// SendInterim sends the response that Interim has begun.
func (e *Exchange) SendInterim() error {
	if e.out.err != nil {
		return e.out.err
	}
	e.out.end()
	return e.sendInterim()
}

func (e *Exchange) sendInterim() error {
	defer func() { e.out.buf = e.out.buf[:0] }()
	if e.Minor == 0 || e.err != nil {
		return e.err
	}
	w := &e.conn.monitor
	w.mu.Lock() // checkClient may be about to write a probe
	defer w.mu.Unlock()
	e.conn.setWriteDeadline()
	e.err = e.conn.write(e.out.buf)
	return e.err
}

// Continue sends 100 Continue if the client waits for it. It does nothing if it was
// sent before, or if the final response has started.
func (e *Exchange) Continue() error {
	if !e.Expects() || e.continued || e.progress >= responseBody {
		return nil
	}
	e.continued = true
	pending := e.out // keeps a final response that has been begun
	e.out = Head{}
	e.out.reset(&e.conn.server.buffers)
	e.out.buf = append(e.out.buf, "HTTP/1.1 100 Continue\r\n\r\n"...)
	err := e.sendInterim()
	e.out.release(&e.conn.server.buffers)
	e.out = pending
	return err
}

// sendText sends a response with one line of text.
func (e *Exchange) sendText(status int, line string) error {
	h := e.Begin(status)
	h.Add("Content-Type", "text/plain; charset=utf-8")
	h.Add("X-Content-Type-Options", "nosniff")
	return e.Send([]byte(strconv.Itoa(status) + " " + line + "\n"))
}
