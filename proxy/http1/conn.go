package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// A conn is one client connection, kept alive (keep-alive) between requests. Its fields belong to the goroutine that serves the
// connection, except those that are marked as shared.
type conn struct {
	server        *Server
	net           net.Conn
	socket        socket.Conn           // of net
	readFirstFunc func(fd uintptr) bool // c.readFirst; a method value made once, to avoid an allocation per call
	tls           bool                  // net is a *tls.Conn
	peer          netip.AddrPort        // valid if peerKnown
	peerKnown     bool
	x             *Exchange // nil while no byte of a request has been read
	firstReadErr  error     // of readFirst
	yield         readYield
	oneByte       [1]byte // buffer for the first byte of a request if the socket cannot be read
	writeGuard    writeGuard
	firstRequest  bool // the first request of the connection has not ended
	handedOver    bool // the connection belongs to another owner

	writeDeadline deadline
	state         atomic.Uint32 // shared

	mu            sync.Mutex // guards the fields below, which are shared with an upload
	readDeadline  deadline   // a negative time means that interruptRead has set one
	bodyUnbounded bool       // Timeouts.Body no longer applies: the response has started
	bodyCanceled  bool       // CancelBodyRead was called
	bodyReading   bool       // a read of the body is in progress

	monitor clientMonitor // shared with Server.monitorClients
}

// The states of a connection.
const (
	stateActive  uint32 = iota
	stateIdle           // waiting for a request
	stateEnded          // ended by Shutdown while idle, or closed
	stateAborted        // closed by Server.Close
)

// errIdleEnded reports that Shutdown ended the connection while it was idle.
var errIdleEnded = errors.New("idle connection closed")

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, socket: socket.New(nc), firstRequest: true}
	_, c.tls = nc.(*tls.Conn)
	c.readFirstFunc = c.readFirst
	return c
}

// A deadline remembers the deadline that was last set on a connection. Setting a
// deadline costs more than comparing times, so set does not set a new one if the
// current one is close enough. A deadline is therefore never early, and late by at most
// one second or an eighth of the timeout, whichever is less.
type deadline struct {
	at time.Duration // since the epoch of the server or client; 0 if no deadline is set
}

// set sets the deadline of an operation that may take until now+timeout on a connection, or removes it if timeout is 0,
// unless the current one can stay. It fails only if the connection is closed, and then the operation fails, too.
func (d *deadline) set(on func(time.Time) error, epoch time.Time, now, timeout time.Duration) {
	slack := min(timeout/8, time.Second)
	want := now + timeout
	switch {
	case timeout == 0 && d.at != 0:
		d.at = 0
		_ = on(time.Time{})
	case timeout != 0 && (d.at < want || d.at > want+slack):
		d.at = want + slack
		_ = on(epoch.Add(d.at))
	}
}

// setReadDeadline sets the deadline for reads to now+timeout, or removes it if timeout
// is 0. The caller holds c.mu, or no upload is running.
func (c *conn) setReadDeadline(now, timeout time.Duration) {
	c.readDeadline.set(c.net.SetReadDeadline, c.server.epoch, now, timeout)
}

func (c *conn) clearReadDeadline() { c.setReadDeadline(0, 0) }

// setWriteDeadline sets the deadline for writes according to Timeouts.Write.
func (c *conn) setWriteDeadline() {
	c.writeDeadline.set(c.net.SetWriteDeadline, c.server.epoch, c.server.now(), c.server.Timeouts.Write)
}

// interruptRead makes a pending read of any goroutine return with a timeout error. The
// caller holds c.mu.
func (c *conn) interruptRead() {
	c.readDeadline.at = -1
	_ = c.net.SetReadDeadline(pastTime())
}

// linger reads and discards what the client still sends before the connection is closed,
// until the client stops or is slower than minBodyRate, or lingerTimeout has passed.
// Closing a socket with unread bytes resets the connection, and the reset can destroy a
// response that the client has not read yet (RFC 9112 section 9.6). Many clients read the
// response only after they have sent all of the request.
func (c *conn) linger() {
	_ = socket.CloseWrite(c.net) // the client can still send
	b := c.x.in.headBuf          // nothing refers to it any more
	received := 0
	for began := c.server.now(); ; {
		now := c.server.now()
		passed := now - began
		left := lingerTimeout - passed
		if c.server.keepAlivesDisabled.Load() || received < minBodyRate*int(passed/time.Second) {
			left = lingerIdle - passed
		}
		if left <= 0 || c.net.SetReadDeadline(c.server.epoch.Add(now+min(left, lingerIdle))) != nil {
			return
		}
		n, err := c.net.Read(b)
		if err != nil {
			return
		}
		received += n
	}
}

// timedOut reports whether err was caused by a deadline.
func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// pastTime returns a time in the past. Used as a deadline, it ends any pending read or
// write.
func pastTime() time.Time { return time.Unix(1, 0) }

// An input holds bytes that were read from a connection and not consumed yet. The head
// of the current message must stay in place until the exchange ends, because strings
// refer to it. Bytes after the head follow it in the same buffer, or in a larger one if
// there are many.
type input struct {
	from    io.Reader
	pool    *bufferPool
	headBuf []byte // holds the head
	bodyBuf []byte // the larger buffer, or nil
	buf     []byte // headBuf or bodyBuf: the one that is read into
	base    int    // the first bytes of buf, which must stay in place
	r, w    int    // buf[r:w] is unread

	discarding bool // the rest of the message is not used: it is read into the space of the head
}

// ensureBuffer gives i a buffer if it has none.
func (i *input) ensureBuffer() {
	if i.buf != nil {
		return
	}
	if i.headBuf == nil {
		i.headBuf = i.pool.getHead()
	}
	i.buf, i.base, i.r, i.w = i.headBuf, 0, 0, 0
}

func (i *input) unread() []byte { return i.buf[i.r:i.w] }

// fill reads more. It returns an error or has read at least one byte.
func (i *input) fill() error {
	if i.r == i.w {
		i.r, i.w = i.base, i.base
	}
	if i.w == len(i.buf) {
		return io.ErrShortBuffer // a read into an empty slice would never make progress
	}
	n, err := i.read(i.buf[i.w:])
	i.w += n
	return err
}

// read reads into p. It returns an error or has read at least one byte.
func (i *input) read(p []byte) (int, error) {
	for {
		n, err := i.from.Read(p)
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// growHead enlarges the buffer for an incomplete head, up to maxSize bytes. Nothing may
// refer to the buffer yet.
func (i *input) growHead(maxSize int) {
	if i.r > 0 {
		i.w = copy(i.buf, i.buf[i.r:i.w])
		i.r = 0
	}
	if i.w < len(i.buf) {
		return
	}
	larger := make([]byte, min(2*len(i.buf), max(maxSize, len(i.buf))+headBufferSize))
	copy(larger, i.buf)
	i.pool.put(i.headBuf)
	i.headBuf, i.buf = larger, larger
}

// retainHead marks the first n unread bytes as the head of the current message.
func (i *input) retainHead(n int) {
	i.r += n
	i.base = i.r
}

// makeRoom provides space after the unread bytes for reading a body of which left bytes
// are missing. left is negative if the number is unknown.
func (i *input) makeRoom(left int64) {
	if room := int64(len(i.buf) - i.base); i.bodyBuf != nil || i.discarding || left >= 0 && left <= room {
		if i.w == len(i.buf) && i.r > i.base {
			i.w = i.base + copy(i.buf[i.base:], i.buf[i.r:i.w])
			i.r = i.base
		}
		return
	}
	i.bodyBuf = i.pool.getBody()
	if more := i.w - i.r; more >= len(i.bodyBuf) {
		i.bodyBuf = make([]byte, 2*more) // the head was very long
	}
	i.w = copy(i.bodyBuf, i.buf[i.r:i.w])
	i.buf, i.base, i.r = i.bodyBuf, 0, 0
}

// nextMessage ends the current message. The unread bytes become the beginning of the
// next message. Nothing may refer to the bytes before them.
func (i *input) nextMessage() {
	rest := i.unread()
	i.discarding = false
	switch {
	case reuse.Poisoned && len(rest) == 0:
		i.release()
		return
	case reuse.Poisoned:
		moved := append(make([]byte, 0, max(headBufferSize, len(rest))), rest...)
		i.release()
		i.headBuf, i.buf, i.w = moved[:cap(moved)], moved[:cap(moved)], len(moved)
		return
	}
	if len(rest) == 0 && i.bodyBuf == nil {
		i.base, i.r, i.w = 0, 0, 0
		return
	}
	if len(rest) > len(i.headBuf) {
		i.pool.put(i.headBuf)
		i.headBuf = make([]byte, len(rest))
	}
	n := copy(i.headBuf, rest)
	if i.bodyBuf != nil {
		i.pool.put(i.bodyBuf)
		i.bodyBuf = nil
	}
	i.buf, i.base, i.r, i.w = i.headBuf, 0, 0, n
}

// discardRest prepares for reading the rest of the current message only to find its end.
// Nothing may refer to its head any more.
func (i *input) discardRest() {
	i.nextMessage()
	i.ensureBuffer()
	i.discarding = true
}

// recycle clears i for reuse on another connection. It keeps one buffer of the usual size.
func (i *input) recycle() {
	kept := i.headBuf
	if reuse.Poisoned || len(kept) != headBufferSize {
		kept = nil
	} else {
		i.headBuf = nil
	}
	i.release()
	*i = input{headBuf: kept}
}

// release returns all buffers to the pool.
func (i *input) release() {
	if i.bodyBuf != nil {
		i.pool.put(i.bodyBuf)
	}
	if i.headBuf != nil {
		i.pool.put(i.headBuf)
	}
	*i = input{from: i.from, pool: i.pool}
}

// An idleRead checks an idle connection whose socket cannot be polled: on a system
// without poll(2), such as Windows, and if there is no socket. A read is pending while
// the connection is idle. It returns if the upstream closes the connection or sends
// unexpected bytes; otherwise a deadline ends it when the connection is needed again. A
// read that begins after its deadline would not look at the socket. This costs a
// goroutine per idle connection.
type idleRead chan error // receives the result of the read

// beginIdleRead begins the read, unless the socket of u can be polled. It reports
// whether u can be kept.
func (u *clientConn) beginIdleRead() bool {
	if u.socket.Raw != nil {
		return true
	}
	if u.idleRead == nil {
		u.idleRead = make(idleRead, 1)
	}
	u.readDeadline.at = 0
	if u.net.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	go func() {
		_, err := u.net.Read(u.oneByte[:])
		u.idleRead <- err
	}()
	return true
}

// endIdleRead ends the read and returns the state of the upstream's end of the
// connection.
func (u *clientConn) endIdleRead() socket.State {
	interrupted := u.net.SetReadDeadline(pastTime()) // if it fails, the connection is closed
	switch err := <-u.idleRead; {
	case err == nil:
		return socket.Readable
	case !timedOut(err), interrupted != nil, u.net.SetReadDeadline(time.Time{}) != nil:
		return socket.Reset
	}
	return socket.Open
}
