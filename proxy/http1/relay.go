package http1

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Relay sends the response of c on, whose head was begun with Begin: its body, as
// it comes, and its trailer fields. What is at hand together is sent together. If
// it fails when the client has been sent a part, the exchange is aborted; an error
// that is a *Fault is the upstream's, any other the client's or the head's.
func (x *Exchange) Relay(c *Call) error {
	c.pollUpload()
	if err := x.StartBody(c.body.framing); err != nil {
		return err
	}
	c.body.flusher = x
	for {
		data, err := c.body.Next()
		if err == io.EOF { //nolint:errorlint // it is the body's own
			return x.EndWith(c.responseTrailer())
		}
		if err != nil {
			return x.abortRelay(c, err)
		}
		if _, err := x.Write(data); err != nil {
			x.Abort()
			return err
		}
	}
}

// A Receiver takes a response in: a Duplex, or what does not speak HTTP/1.1.
type Receiver interface {
	// Begin takes the header, of a body with so many bytes; -1 if unknown.
	Begin(status int, f *Fields, length int64) error
	// Write takes a piece of the body, which may wait for Flush or End.
	Write(p []byte) (int, error)
	Flush() error
	// End takes the trailer fields.
	End(trailer *Fields) error
}

// RelayTo sends the response to whatever takes it; for an Exchange that has no other
// reader of its body, Relay costs less. An error that is a *Fault is the upstream's,
// any other that of to.
func (c *Call) RelayTo(to Receiver) error {
	c.pollUpload()
	if err := to.Begin(c.Response.Status, &c.Response.Fields, c.body.framing.Length); err != nil {
		return err
	}
	before := &flushRecorder{to: to}
	c.body.flusher = before
	for {
		data, err := c.body.Next()
		switch {
		case errors.Is(err, io.EOF):
			return to.End(c.responseTrailer())
		case before.err != nil:
			return before.err
		case err != nil:
			_ = to.Flush() // what has come is the client's
			return c.responseBodyError(err)
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

// A flushRecorder flushes, and notes how that failed.
type flushRecorder struct {
	to  flusher
	err error
}

// Flush implements flusher.
func (f *flushRecorder) Flush() error {
	f.err = f.to.Flush()
	return f.err
}

// responseTrailer are the trailer fields of the response that are sent on.
func (c *Call) responseTrailer() *Fields {
	if keep := c.KeepResponseTrailer; keep != nil {
		c.body.trailer.DropFunc(func(f Field) bool { return !keep(f) })
	}
	return &c.body.trailer
}

// abortRelay cuts the response short since its upstream did, or its client.
func (x *Exchange) abortRelay(c *Call, err error) error {
	if x.err == nil {
		_ = x.Flush() // what has come is the client's
	}
	x.Abort()
	if x.err != nil {
		return x.err
	}
	return c.responseBodyError(err)
}

// responseBodyError says why the body of the response was cut short. What ends the body of
// the request ends it, too: an upstream cannot answer what never arrived.
func (c *Call) responseBodyError(err error) *CallError {
	f := &CallError{Phase: ReadingResponseBody, Err: c.abortedOr(err), Reused: c.Reused(), RequestSent: true, ResponseStarted: true}
	c.stopUpload()
	if why := c.requestBodyErr(); why != nil {
		f.Phase, f.Err = ReadingRequestBody, why
	}
	return f
}

// UpgradedConn hands the connection over that has changed its protocol: what the
// upstream has sent behind its 101 comes first, as unread. Both belong to the
// caller from then on, and deadlines are off.
func (c *Call) UpgradedConn() (nc net.Conn, unread []byte, ok bool) {
	if !c.switched || c.handedOver {
		return nil, nil, false
	}
	c.handedOver = true
	c.setActiveConn(nil)
	_ = c.conn.net.SetDeadline(time.Time{})
	return c.conn.net, append([]byte(nil), c.in.unread()...), true
}

// A TunnelEnd is one end of a tunnel: a connection, and what was read from it already.
type TunnelEnd struct {
	Conn   net.Conn
	Unread []byte
}

// Tunnel carries bytes both ways until both directions have ended, or one has
// failed; then it closes both. Nothing is read that is not sent on.
func Tunnel(a, b TunnelEnd) {
	var both sync.WaitGroup
	both.Go(func() { copyOneWay(a.Conn, b) })
	copyOneWay(b.Conn, a)
	both.Wait()
	_ = a.Conn.Close()
	_ = b.Conn.Close()
}

// copyOneWay sends what comes from one side to the other. The end of one direction
// leaves the other open.
func copyOneWay(to net.Conn, from TunnelEnd) {
	_, err := to.Write(from.Unread)
	if err == nil {
		_, err = io.Copy(to, from.Conn) // between two sockets, the kernel does it
	}
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Conn.Close()
}
