package http1

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A Pool keeps the idle connections of one endpoint. The one that was used last is
// used next, so that those that are not needed age. It never holds one that owes a
// response, or has brought bytes that nobody asked for.
type Pool struct {
	client   *Client
	endpoint Endpoint

	mu        sync.Mutex // guards what follows
	idle      []*clientConn
	closed    bool
	reapTimer *time.Timer // runs while there are idle connections; nil if there are none
}

// Idle is how many idle connections there are.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// get is an idle connection that is fit to be used for c, nil if there is none. If c
// can ask over it at once, that finds out whether it is.
func (p *Pool) get(c *Call, now time.Duration) *clientConn {
	for {
		u := p.pop()
		if u == nil || u.fresh(now) && (c.canWriteAtOnce(u) || u.peerState() == PeerOpen) {
			return u
		}
		u.close()
	}
}

func (p *Pool) pop() *clientConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	u := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return u
}

// put keeps u, whose last exchange was whole. If there are too many, the one that
// was not used for longest is closed.
func (p *Pool) put(u *clientConn) {
	u.idleSince = p.client.now()
	if oldest := p.push(u); oldest != nil {
		oldest.close()
	}
}

func (p *Pool) push(u *clientConn) (oldest *clientConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return u
	}
	if len(p.idle) >= p.client.MaxIdleConns {
		oldest = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, u)
	if p.reapTimer == nil {
		p.reapTimer = time.AfterFunc(p.client.IdleConnTimeout/2, p.reap)
	}
	return oldest
}

// reap closes connections that have not been used for long.
func (p *Pool) reap() {
	p.mu.Lock()
	now := p.client.now()
	n := 0
	for n < len(p.idle) && !p.idle[n].fresh(now) {
		n++
	}
	old := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	if len(p.idle) > 0 {
		p.reapTimer.Reset(p.client.IdleConnTimeout / 2)
	} else {
		p.reapTimer = nil
	}
	p.mu.Unlock()
	for _, u := range old {
		u.close()
	}
}

// CloseIdle closes the connections that are idle now.
func (p *Pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, u := range idle {
		u.close()
	}
}

// Close closes idle connections, and those in use when their exchange has ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	if p.reapTimer != nil {
		p.reapTimer.Stop()
	}
	p.mu.Unlock()
	p.CloseIdle()
}

// dial makes a connection for c, which can abort it.
func (p *Pool) dial(c *Call) (*clientConn, *CallError) {
	ctx, cancel := withTimeout(context.Background(), p.client.ConnectTimeout)
	defer cancel()
	if !c.setDialCancel(cancel) {
		return nil, &CallError{Phase: Dialing, Err: ErrAborted}
	}
	defer c.setDialCancel(nil)
	nc, err := p.endpoint.Dial(ctx, p.endpoint.Network, p.endpoint.Address)
	if err != nil {
		return nil, &CallError{Phase: Dialing, Err: c.abortedOr(err)}
	}
	if p.endpoint.TLS == nil {
		return newClientConn(p, nc), nil
	}
	if p.client.TLSHandshakeTimeout > 0 {
		ctx, cancel = withTimeout(context.Background(), p.client.TLSHandshakeTimeout)
		defer cancel()
		c.setDialCancel(cancel)
	}
	secure := tls.Client(nc, p.endpoint.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, &CallError{Phase: Handshaking, Err: c.abortedOr(err)}
	}
	return newClientConn(p, secure), nil
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// A clientConn is a connection to an endpoint.
type clientConn struct {
	pool      *Pool
	net       net.Conn
	tls       bool
	probe     peerProbe
	created   time.Duration // after the client's epoch
	idleSince time.Duration // when it became idle
	reused    bool

	readDeadline, writeDeadline deadline
	oneByte                     [1]byte

	attempt     reuseAttempt
	rawConn     syscall.RawConn       // of net, nil if something lies in between
	attemptStep func(fd uintptr) bool // that of asking
}

func newClientConn(p *Pool, nc net.Conn) *clientConn {
	u := &clientConn{pool: p, net: nc, created: p.client.now()}
	_, u.tls = nc.(*tls.Conn)
	u.probe.init(nc)
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		if runtime.GOOS != "windows" {
			u.rawConn, u.attemptStep = u.probe.raw, u.attempt.step
		}
	}
	return u
}

// fresh reports whether u is young enough to be used again.
func (u *clientConn) fresh(now time.Duration) bool {
	c := u.pool.client
	return now-u.idleSince < c.IdleConnTimeout && (c.MaxConnAge == 0 || now-u.created < c.MaxConnAge)
}

// peerState tells whether something has come that nobody has asked for, be it the end
// of the connection. One that cannot be looked at is never fit.
func (u *clientConn) peerState() PeerState {
	if u.probe.raw == nil {
		return PeerReset
	}
	return u.probe.peerState()
}

// hasBufferedTLS reports whether TLS has decrypted bytes that have not been read, which
// the socket knows nothing of. There must be no other reader.
func (u *clientConn) hasBufferedTLS() bool {
	if !u.tls {
		return false
	}
	u.readDeadline.at = 0
	if u.net.SetReadDeadline(pastTime()) != nil {
		return true
	}
	n, err := u.net.Read(u.oneByte[:])
	return n > 0 || !timedOut(err) || u.net.SetReadDeadline(time.Time{}) != nil
}

// setReadDeadline bounds reading; 0 is no bound.
func (u *clientConn) setReadDeadline(within time.Duration) {
	u.setReadDeadlineAt(u.pool.client.now(), within)
}

func (u *clientConn) setReadDeadlineAt(now, within time.Duration) {
	if within == 0 {
		if u.readDeadline.at != 0 {
			u.readDeadline.at = 0
			_ = u.net.SetReadDeadline(time.Time{})
		}
		return
	}
	c := u.pool.client
	if at, due := u.readDeadline.next(now, within); due {
		u.readDeadline.at = at
		_ = u.net.SetReadDeadline(c.epoch.Add(at)) // fails if the connection is closed, as reading will
	}
}

// setWriteDeadline bounds writing.
func (u *clientConn) setWriteDeadline() {
	c := u.pool.client
	if c.ResponseTimeout == 0 {
		return
	}
	if at, due := u.writeDeadline.next(c.now(), c.ResponseTimeout); due {
		u.writeDeadline.at = at
		_ = u.net.SetWriteDeadline(c.epoch.Add(at))
	}
}

func (u *clientConn) close() { _ = u.net.Close() }
