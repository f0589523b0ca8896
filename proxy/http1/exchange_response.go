package http1

import (
	"net"
	"strconv"
	"time"
)

// Begin begins the final response and forgets one that was begun and not sent.
// Date is added unless the response has it, and what concerns the connection
// and the framing.
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

// Send ends the answer with this body, in one write. Of a body that the method or
// the status excludes, only the length is sent.
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

// StartBody ends the head of the response: a body follows by Write and End, whose
// length is that of f, or unknown. Nothing is sent yet. How the body is delimited
// is decided here, whatever the Kind of f.
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
	x.conn.monitor.startResponse()
	x.conn.startResponse()
	return nil
}

// beforeEnd is called before the end of a response is sent of which a part can be
// sent before; beforeWholeEnd of any other.
func (x *Exchange) beforeEnd() {
	if ending := x.BeforeEnd; ending != nil {
		x.BeforeEnd = nil
		ending(x.flushPartial)
	}
}

func (x *Exchange) beforeWholeEnd() {
	if ending := x.BeforeEnd; ending != nil {
		x.BeforeEnd = nil
		ending(func() {})
	}
}

// flushPartial sends what there is of a response that is not all.
func (x *Exchange) flushPartial() { _ = x.Flush() } // who ends the response meets the error again

// notWorthDraining reports whether what is left of the request's body is not worth
// reading for the sake of the connection: it is long, cannot be read, or has not
// been sent yet.
func (x *Exchange) notWorthDraining() bool {
	b := x.Body()
	if b == nil || b.done() {
		return false
	}
	return b.err != nil || x.Expects() && !x.continued || b.bytesLeft > int64(x.conn.server.Limits.Drain)
}

// Write adds to the body of the response. It may keep little until Flush or
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

// writeThrough sends what is there and p behind it, which is not copied if that can be
// avoided.
func (x *Exchange) writeThrough(p []byte) error {
	end := ""
	if x.framing.Kind == Chunked {
		end = "\r\n"
	}
	x.conn.setWriteDeadline()
	x.conn.monitor.writes.Add(1)
	switch to, plain := x.conn.net.(*net.TCPConn); {
	case plain:
		x.vector = [3][]byte{x.out.buf, p, append(x.lineEnd[:0], end...)}
		x.buffers = x.vector[:]
		_, x.err = x.buffers.WriteTo(to)
		x.vector = [3][]byte{}
	case len(x.out.buf) == 0 && end == "":
		_, x.err = x.conn.net.Write(p)
	default:
		x.out.buf = append(append(x.out.buf, p...), end...)
		_, x.err = x.conn.net.Write(x.out.buf)
	}
	x.out.buf = x.out.buf[:0]
	return x.err
}

// Flush sends what has been written.
func (x *Exchange) Flush() error {
	if len(x.out.buf) == 0 {
		return x.err
	}
	return x.flush(x.conn.server.now())
}

// flush is Flush at the time now, if there is something to send.
func (x *Exchange) flush(now time.Duration) error {
	if len(x.out.buf) == 0 || x.err != nil || x.stage < responseBody {
		return x.err
	}
	x.conn.setWriteDeadlineAt(now)
	x.conn.monitor.writes.Add(1)
	x.err = x.conn.writeRaw(x.out.buf)
	x.out.buf = x.out.buf[:0]
	return x.err
}

// End ends the response and sends what is left of it. Less body than announced
// is an error, after which the connection is cut.
func (x *Exchange) End() error { return x.EndWith(nil) }

// EndWith is End with trailer fields, which only a body in chunks can have. Those
// that must not stand there are left out.
func (x *Exchange) EndWith(trailer *Fields) error {
	return x.endWith(func(h *Head) {
		if trailer != nil {
			trailer.DropForbiddenTrailers()
			h.AddFields(trailer)
		}
	})
}

// endWith is EndWith for who adds the trailer fields, which must be checked.
func (x *Exchange) endWith(trailer func(h *Head)) error {
	switch {
	case x.stage != responseBody:
		return ErrResponseState
	case x.framing.Kind == FixedLength && x.bytesLeft > 0:
		return ErrBodyTooShort
	case x.framing.Kind == NoBody, x.framing.Kind == FixedLength:
		x.beforeWholeEnd() // unless it has a body, whose last piece has been written before
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

// Interim begins a 1xx response, which SendInterim sends: before Begin, and any
// number of times. A client of HTTP/1.0 gets none.
func (x *Exchange) Interim(status int) *Head {
	if x.stage >= responseHead { // there is something in it that must not be lost
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

// SendInterim sends what Interim began.
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
	w.mu.Lock() // the sweep may be about to ask the client something
	defer w.mu.Unlock()
	x.conn.setWriteDeadline()
	_, x.err = x.conn.net.Write(x.out.buf)
	return x.err
}

// Continue sends 100 Continue if the client waits for it: once at most, and not
// any more when the final response has begun.
func (x *Exchange) Continue() error {
	if !x.Expects() || x.continued || x.stage >= responseBody {
		return nil
	}
	x.continued = true
	pending := x.out // a response that has been begun is not lost
	x.out = Head{}
	x.out.reset(&x.conn.server.buffers)
	x.out.buf = append(x.out.buf, "HTTP/1.1 100 Continue\r\n\r\n"...)
	err := x.sendInterim()
	x.out.release(&x.conn.server.buffers)
	x.out = pending
	return err
}

// sendText sends a line of text as a response.
func (x *Exchange) sendText(status int, line string) error {
	h := x.Begin(status)
	h.Add("Content-Type", "text/plain; charset=utf-8")
	h.Add("X-Content-Type-Options", "nosniff")
	return x.Send([]byte(strconv.Itoa(status) + " " + line + "\n"))
}
