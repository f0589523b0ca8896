package http1

import (
	"net"
	"strconv"
	"time"
)

// Begin begins the head of the final response and returns it, so that fields can be
// added. A response that was begun before and not sent is dropped. The fields
// Connection, Content-Length and Transfer-Encoding are added automatically, and Date if
// it is missing.
func (x *Exchange) Begin(status int) *Head {
	if x.stage >= responseBody {
		x.out.err = ErrResponseState
		return &x.out
	}
	x.out.reset(&x.conn.server.buffers)
	x.out.startResponse(status)
	x.status, x.stage = status, responseHead
	return &x.out
}

// Send completes the response with this body, in one write. If the method or the status
// does not allow a body, only its length is sent.
func (x *Exchange) Send(body []byte) error {
	if err := x.StartBody(Framing{FixedLength, int64(len(body))}); err != nil {
		return err
	}
	if x.framing.Kind == FixedLength {
		if _, err := x.Write(body); err != nil {
			return err
		}
	}
	return x.End()
}

// StartBody completes the head of the response. The body follows with Write and End.
// f.Length is the length of the body, or negative if it is unknown; f.Kind is ignored
// except for NoBody and FixedLength, because the framing also depends on the request.
// Nothing is sent yet.
func (x *Exchange) StartBody(f Framing) error {
	switch {
	case x.stage != responseHead || x.status < 200:
		return ErrResponseState
	case x.out.err != nil:
		x.stage = responseNone
		return x.out.err
	}
	x.framing = outgoingFraming(recipient{x.Minor, x.Method(), x.status}, f)
	x.bytesLeft = x.framing.Length
	x.closeConn = x.closeConn || x.Close || x.framing.Kind == UntilClose || x.conn.server.keepAlivesDisabled.Load() || x.uploading || x.notWorthDraining()
	if !x.out.hasDate {
		x.out.buf = x.conn.server.date.append(x.out.buf)
	}
	x.out.addFraming(x.framing)
	switch {
	case x.closeConn:
		x.out.add("Connection", "close")
	case x.Minor == 0:
		x.out.add("Connection", "keep-alive")
	}
	x.out.end()
	x.stage = responseBody
	x.conn.startResponse()
	return nil
}

// beforeEnd calls BeforeEnd for a response of which a part can be sent before the end;
// beforeWholeEnd for one that is sent as a whole.
func (x *Exchange) beforeEnd() {
	if before := x.BeforeEnd; before != nil {
		x.BeforeEnd = nil
		before(x.flushPartial)
	}
}

func (x *Exchange) beforeWholeEnd() {
	if before := x.BeforeEnd; before != nil {
		x.BeforeEnd = nil
		before(func() {})
	}
}

// flushPartial sends the part of an incomplete response that has been written.
func (x *Exchange) flushPartial() { _ = x.Flush() } // the error stays in x.err

// notWorthDraining reports whether the connection should be closed instead of reading
// the rest of the request body: the rest is long, cannot be read, or the client waits
// for 100 Continue before it sends it.
func (x *Exchange) notWorthDraining() bool {
	b := x.Body()
	if b == nil || b.done() {
		return false
	}
	return b.err != nil || x.Expects() && !x.continued || b.bytesLeft > int64(x.conn.server.Limits.Drain)
}

// Write writes a part of the response body. Small writes are buffered until Flush or
// End.
func (x *Exchange) Write(p []byte) (int, error) {
	switch {
	case x.stage != responseBody:
		return 0, ErrResponseState
	case x.err != nil:
		return 0, x.err
	case len(p) == 0:
		return 0, nil
	}
	switch x.framing.Kind {
	case NoBody:
		return len(p), nil
	case FixedLength:
		if int64(len(p)) > x.bytesLeft {
			return 0, ErrBodyTooLong
		}
		if x.bytesLeft -= int64(len(p)); x.bytesLeft == 0 {
			x.beforeEnd()
		}
	case Chunked:
		x.out.buf = appendHex(x.out.buf, uint64(len(p)))
		x.out.buf = append(x.out.buf, '\r', '\n')
	}
	x.bodySent += int64(len(p))
	if len(x.out.buf)+len(p)+len("\r\n") > cap(x.out.buf) {
		return len(p), x.writeThrough(p)
	}
	x.out.buf = append(x.out.buf, p...)
	if x.framing.Kind == Chunked {
		x.out.buf = append(x.out.buf, '\r', '\n')
	}
	return len(p), nil
}

// writeThrough sends the buffered bytes and p. It avoids copying p if the connection is
// a TCP socket.
func (x *Exchange) writeThrough(p []byte) error {
	end := ""
	if x.framing.Kind == Chunked {
		end = "\r\n"
	}
	x.conn.setWriteDeadline()
	x.conn.monitor.beginWrite()
	switch to, plain := x.conn.net.(*net.TCPConn); {
	case plain:
		x.vector = [3][]byte{x.out.buf, p, append(x.lineEnd[:0], end...)}
		x.buffers = x.vector[:]
		x.conn.writeGuard.begin()
		_, x.err = x.buffers.WriteTo(to)
		x.conn.writeGuard.end()
		x.vector = [3][]byte{}
	case len(x.out.buf) == 0 && end == "":
		x.err = x.conn.write(p)
	default:
		x.out.buf = append(append(x.out.buf, p...), end...)
		x.err = x.conn.write(x.out.buf)
	}
	x.out.buf = x.out.buf[:0]
	return x.err
}

// Flush sends the buffered bytes.
func (x *Exchange) Flush() error {
	if len(x.out.buf) == 0 {
		return x.err
	}
	return x.flush(x.conn.server.now())
}

// flush is Flush with the current time as an argument.
func (x *Exchange) flush(now time.Duration) error {
	if len(x.out.buf) == 0 || x.err != nil || x.stage < responseBody {
		return x.err
	}
	x.conn.setWriteDeadlineAt(now)
	x.conn.monitor.beginWrite()
	x.err = x.conn.write(x.out.buf)
	x.out.buf = x.out.buf[:0]
	return x.err
}

// End completes the response and sends what is buffered. If the body is shorter than
// announced, it returns ErrBodyTooShort, and the connection is aborted.
func (x *Exchange) End() error { return x.EndWith(nil) }

// EndWith is End with trailer fields. They are sent only if the body is chunked. Fields
// that are not allowed in a trailer section are dropped.
func (x *Exchange) EndWith(trailer *Fields) error {
	return x.endWith(func(h *Head) {
		if trailer != nil {
			trailer.DropForbiddenTrailers()
			h.AddFields(trailer)
		}
	})
}

// endWith is EndWith with a function that adds trailer fields. These must be valid in a
// trailer section.
func (x *Exchange) endWith(trailer func(h *Head)) error {
	switch {
	case x.stage != responseBody:
		return ErrResponseState
	case x.framing.Kind == FixedLength && x.bytesLeft > 0:
		return ErrBodyTooShort
	case x.framing.Kind == NoBody, x.framing.Kind == FixedLength:
		x.beforeWholeEnd() // does nothing if Write has called BeforeEnd for the last piece of a body
	default:
		x.beforeEnd()
	}
	switch {
	case x.framing.Kind == Chunked:
		x.out.buf = append(x.out.buf, lastChunk...)
		trailer(&x.out)
		x.out.end()
	}
	if !x.conn.server.FlushAfterHandler {
		if err := x.Flush(); err != nil {
			return err
		}
	}
	x.stage = responseDone
	return nil
}

// Interim begins a 1xx response, which SendInterim sends. There can be several of them
// before Begin. A client of HTTP/1.0 gets none.
func (x *Exchange) Interim(status int) *Head {
	if x.stage >= responseHead { // the buffer holds a part of the final response
		x.out.err = ErrResponseState
		return &x.out
	}
	x.out.reset(&x.conn.server.buffers)
	x.out.startResponse(status)
	if status >= 200 || status == 101 {
		x.out.err = ErrResponseState
	}
	return &x.out
}

// SendInterim sends the response that Interim has begun.
func (x *Exchange) SendInterim() error {
	if x.out.err != nil {
		return x.out.err
	}
	x.out.end()
	return x.sendInterim()
}

func (x *Exchange) sendInterim() error {
	defer func() { x.out.buf = x.out.buf[:0] }()
	if x.Minor == 0 || x.err != nil {
		return x.err
	}
	w := &x.conn.monitor
	w.mu.Lock() // checkClient may be about to write a probe
	defer w.mu.Unlock()
	x.conn.setWriteDeadline()
	x.err = x.conn.write(x.out.buf)
	return x.err
}

// Continue sends 100 Continue if the client waits for it. It does nothing if it was
// sent before, or if the final response has started.
func (x *Exchange) Continue() error {
	if !x.Expects() || x.continued || x.stage >= responseBody {
		return nil
	}
	x.continued = true
	pending := x.out // keeps a final response that has been begun
	x.out = Head{}
	x.out.reset(&x.conn.server.buffers)
	x.out.buf = append(x.out.buf, "HTTP/1.1 100 Continue\r\n\r\n"...)
	err := x.sendInterim()
	x.out.release(&x.conn.server.buffers)
	x.out = pending
	return err
}

// sendText sends a response with one line of text.
func (x *Exchange) sendText(status int, line string) error {
	h := x.Begin(status)
	h.Add("Content-Type", "text/plain; charset=utf-8")
	h.Add("X-Content-Type-Options", "nosniff")
	return x.Send([]byte(strconv.Itoa(status) + " " + line + "\n"))
}
