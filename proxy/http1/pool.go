package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// A Pool is a connection pool: it holds the idle connections to one endpoint. It reuses the most recently used
// connection first, so that connections that are not needed reach their idle timeout.
// It never holds a connection with an incomplete exchange, or one that is known to have
// unread bytes.
//
// With many processors each has a list of its own. One whose list is empty takes a
// connection from another list before it dials.
type Pool struct {
	client   *Client
	endpoint Endpoint
	lists    []idleList // by stripe
}

// An idleList holds the idle connections of a processor. No two are in the same cache lines.
type idleList struct {
	mu        sync.Mutex // guards what follows
	idle      []*clientConn
	closed    bool
	reapTimer *time.Timer // runs while there are idle connections; otherwise nil
	_         [stripe.LineSize - 48]byte
}

func (l *idleList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.idle)
}

// get returns an idle connection for c, or nil if there is none. If c can be sent with
// a reuseAttempt, that attempt checks whether the connection is stale; otherwise get
// does.
func (p *Pool) get(c *Call, now time.Duration) *clientConn {
	for {
		u := p.pop()
		if u == nil || !u.expired(now) && (c.canWriteAtOnce(u) || u.peerState() == socket.Open) {
			return u
		}
		u.close()
	}
}

// pop takes a connection from the list of the processor, or from the next one that is not empty.
func (p *Pool) pop() *clientConn {
	own := p.client.stripes.Own()
	u := p.lists[own].pop()
	for i := 1; u == nil && i < len(p.lists); i++ {
		u = p.lists[(own+i)%len(p.lists)].pop()
	}
	return u
}

func (l *idleList) pop() *clientConn {
	l.mu.Lock()
	var u *clientConn
	if last := len(l.idle) - 1; last >= 0 {
		u, l.idle[last] = l.idle[last], nil
		l.idle = l.idle[:last]
	}
	l.mu.Unlock()
	return u
}

// put adds u, which has been idle since a given time, to the pool after its last
// exchange was completed. If the pool is full, the connection that has been idle for
// longest in the list of the processor is closed.
func (p *Pool) put(u *clientConn, idleSince time.Duration) {
	u.idleSince = idleSince
	if !u.beginIdleRead() {
		u.close()
		return
	}
	own := p.client.stripes.Own()
	at := own
	for i := 1; i < len(p.lists) && p.lists[at].len() >= p.maxPerList(); i++ {
		at = (own + i) % len(p.lists)
	}
	if oldest := p.push(at, u); oldest != nil {
		oldest.close()
	}
}

// maxPerList is the maximum number of connections in a list.
func (p *Pool) maxPerList() int { return p.client.MaxIdleConns / len(p.lists) }

// push adds u to a list, and returns a connection that must be closed, or nil.
func (p *Pool) push(list int, u *clientConn) (oldest *clientConn) {
	l := &p.lists[list]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return u
	}
	if len(l.idle) >= p.maxPerList() {
		oldest = l.idle[0]
		l.idle = slices.Delete(l.idle, 0, 1)
	}
	l.idle = append(l.idle, u)
	if l.reapTimer == nil {
		l.reapTimer = time.AfterFunc(p.client.IdleConnTimeout/2, func() { p.reap(l) })
	}
	return oldest
}

// reap closes the connections of l that have reached their idle timeout.
func (p *Pool) reap(l *idleList) {
	l.mu.Lock()
	now := p.client.now()
	var old []*clientConn
	l.idle = slices.DeleteFunc(l.idle, func(u *clientConn) bool {
		if !u.expired(now) {
			return false
		}
		old = append(old, u)
		return true
	})
	if len(l.idle) > 0 {
		l.reapTimer.Reset(p.client.IdleConnTimeout / 2)
	} else {
		l.reapTimer = nil
	}
	l.mu.Unlock()
	for _, u := range old {
		u.close()
	}
}

// Close closes all idle connections. Connections in use are closed when their exchange
// has ended.
func (p *Pool) Close() {
	for i := range p.lists {
		l := &p.lists[i]
		l.mu.Lock()
		l.closed = true
		if l.reapTimer != nil {
			l.reapTimer.Stop()
		}
		idle := l.idle
		l.idle = nil
		l.mu.Unlock()
		for _, u := range idle {
			u.close()
		}
	}
}

// dial establishes a connection for c. Call.Abort cancels it.
func (p *Pool) dial(c *Call) (*clientConn, *CallError) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.cancelDial.Store(&cancel)
	defer c.cancelDial.Store(nil)
	if err := c.abortedOr(nil); err != nil {
		return nil, &CallError{Phase: Dialing, Err: err}
	}
	nc, err := p.endpoint.Connect(ctx, p.client.ConnectTimeout, p.client.TLSHandshakeTimeout)
	if err != nil {
		err.Err = c.abortedOr(err.Err)
		return nil, err
	}
	return newClientConn(p, nc), nil
}

// Connect establishes a connection to e within the first timeout, and performs the TLS handshake within the second, which
// is what is left of the first if it is 0.
func (e *Endpoint) Connect(ctx context.Context, connect, handshake time.Duration) (net.Conn, *CallError) {
	limited, cancel := context.WithTimeout(ctx, connect)
	defer cancel()
	nc, err := e.Dial(limited, e.Network, e.Address)
	if err != nil {
		return nil, &CallError{Phase: Dialing, Err: err}
	}
	if e.TLS == nil {
		return nc, nil
	}
	if handshake > 0 {
		limited, cancel = context.WithTimeout(ctx, handshake)
		defer cancel()
	}
	secure := socket.TLSClient(nc, e.TLS)
	if err := secure.HandshakeContext(limited); err != nil {
		_ = nc.Close()
		return nil, &CallError{Phase: Handshaking, Err: err}
	}
	return secure, nil
}

// A clientConn is a connection to an upstream.
type clientConn struct {
	pool      *Pool
	net       net.Conn
	tls       bool
	socket    socket.Conn   // of net
	idleRead  idleRead      // used if the socket cannot be polled
	maxIdle   time.Duration // how long the upstream keeps the connection open; 0 if it did not say
	idleSince time.Duration // when it has received the last response
	reused    bool

	readDeadline, writeDeadline deadline
	oneByte                     [1]byte

	writeGuard  writeGuard
	attempt     reuseAttempt
	attemptFunc func(fd uintptr) bool // attempt.step, a method value made once
}

func newClientConn(p *Pool, nc net.Conn) *clientConn {
	u := &clientConn{pool: p, net: nc, socket: socket.New(nc)}
	_, u.tls = nc.(*tls.Conn)
	u.attemptFunc = u.attempt.step
	return u
}

// expired reports whether u has been idle for too long to be used again.
func (u *clientConn) expired(now time.Duration) bool {
	limit := u.pool.client.IdleConnTimeout
	if u.maxIdle != 0 {
		limit = min(limit, u.maxIdle)
	}
	return now-u.idleSince >= limit
}

// peerState returns the state of the upstream's end of a connection that was idle.
func (u *clientConn) peerState() socket.State {
	if u.socket.Raw == nil {
		return u.endIdleRead()
	}
	return u.socket.State()
}

// hasBufferedTLS reports whether TLS holds decrypted bytes that have not been read. The
// state of the socket does not show those. There must be no concurrent read.
func (u *clientConn) hasBufferedTLS() bool {
	if !u.tls || u.socket.CanReadNow() {
		return u.socket.HasBuffered()
	}
	u.readDeadline.at = 0
	if u.net.SetReadDeadline(pastTime()) != nil {
		return true
	}
	n, err := u.net.Read(u.oneByte[:])
	return n > 0 || !timedOut(err) || u.net.SetReadDeadline(time.Time{}) != nil
}

// setReadDeadline sets the deadline for reads, or removes it if timeout is 0.
func (u *clientConn) setReadDeadline(timeout time.Duration) {
	u.setReadDeadlineAt(u.pool.client.now(), timeout)
}

func (u *clientConn) setReadDeadlineAt(now, timeout time.Duration) {
	u.readDeadline.set(u.net.SetReadDeadline, u.pool.client.epoch, now, timeout)
}

// setWriteDeadline sets the deadline for writes according to Client.ResponseTimeout.
func (u *clientConn) setWriteDeadline(now time.Duration) {
	u.writeDeadline.set(u.net.SetWriteDeadline, u.pool.client.epoch, now, u.pool.client.ResponseTimeout)
}

// write writes p to the upstream.
func (u *clientConn) write(p []byte) (int, error) {
	u.writeGuard.begin()
	defer u.writeGuard.end()
	return u.net.Write(p)
}

func (u *clientConn) close() { _ = u.net.Close() }

// errStale reports that an idle connection had been closed, or had received unexpected
// bytes, before any part of the request was sent.
var errStale = errors.New("stale connection")

// A reuseAttempt sends a request on a reused connection and reads the beginning of the
// response. It needs one system call less than separate steps. The runtime begins every
// wait with a read that usually returns nothing; here that read comes before the
// request is written, so that it also shows whether the connection is stale. The buffer
// for the response is taken only when there are bytes to read. All waiting calls then
// share a few buffers, which stay in the CPU cache.
type reuseAttempt struct {
	socket   *socket.Conn
	request  []byte // the bytes to send
	response *input // where the response is read to; it gets a buffer when there is something to read

	stage   reuseAttemptStage
	written int // number of bytes of the request
	err     error
}

type reuseAttemptStage uint8

const (
	attemptNotSent  reuseAttemptStage = iota // the request has not been sent
	attemptStale                             // unexpected bytes or the end of the connection: the request was not sent
	attemptPartial                           // the socket has accepted only a part of the request
	attemptAwaiting                          // the request was sent; waiting for the response
	attemptDone                              // the beginning of the response was read, or err is set
)

// sendReused sends the request of c on the reused connection u and reads the beginning
// of the response into c.in. sent is the number of bytes of the request that were
// written. If it is the whole request, c.in is not empty.
func (c *Call) sendReused(u *clientConn) (sent int, callErr *CallError) {
	a := &u.attempt
	*a = reuseAttempt{socket: &u.socket, request: c.out.buf, response: &c.in}
	u.writeGuard.begin()
	err := u.socket.Raw.Read(u.attemptFunc)
	u.writeGuard.end()
	a.request, a.response = nil, nil
	switch {
	case err == nil && a.stage == attemptStale:
		return 0, &CallError{Phase: Dialing, Err: errStale, Reused: true}
	case err == nil && a.stage == attemptPartial:
		return a.written, nil
	case err == nil:
		err = a.err
	default:
		err = socket.TrimRaw(err)
	}
	if err != nil {
		f := c.newError(err)
		f.RequestSent = a.written > 0
		return a.written, f
	}
	return a.written, nil
}

// step is called by the runtime, once at first and then whenever the socket may be
// readable. It returns true when there is nothing more to wait for.
func (a *reuseAttempt) step(fd uintptr) bool {
	if a.stage == attemptNotSent {
		a.checkAndSend(fd)
		return a.stage != attemptAwaiting
	}
	a.response.ensureBuffer()
	n, err := a.socket.ReadNow(fd, a.response.buf[a.response.w:])
	if err == socket.ErrWouldBlock { //nolint:errorlint // it is never wrapped
		return false
	}
	a.response.w += n
	a.stage, a.err = attemptDone, err
	return true
}

// checkAndSend sends the request if the socket has nothing to read.
func (a *reuseAttempt) checkAndSend(fd uintptr) {
	if !a.socket.IsQuiet(fd) {
		a.stage = attemptStale
		return
	}
	a.written, a.err = a.socket.WriteNow(fd, a.request)
	switch a.err {
	case nil:
		a.stage = attemptAwaiting
	case socket.ErrWouldBlock: //nolint:errorlint // it is never wrapped
		a.stage = attemptPartial
	default:
		a.stage = attemptDone
	}
}
