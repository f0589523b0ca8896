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

	mu     sync.Mutex // guards what follows
	idle   []*clientConn
	closed bool
	reaper *time.Timer // runs while there are idle connections; nil if there are none
}

// Idle is how many idle connections there are.
func (p *Pool) Idle() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// take is an idle connection that is fit to be used for c, nil if there is none. If c
// can ask over it at once, that finds out whether it is.
func (p *Pool) take(c *Call, now time.Duration) *clientConn {
	for {
		u := p.pop()
		if u == nil || u.fresh(now) && (c.startAttempt(u) || u.look() == Silent) {
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
	u.since = p.client.now()
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
	if len(p.idle) >= p.client.MaxIdle {
		oldest = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.idle = append(p.idle, u)
	if p.reaper == nil {
		p.reaper = time.AfterFunc(p.client.IdleFor/2, p.reap)
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
		p.reaper.Reset(p.client.IdleFor / 2)
	} else {
		p.reaper = nil
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
	if p.reaper != nil {
		p.reaper.Stop()
	}
	p.mu.Unlock()
	p.CloseIdle()
}

// dial makes a connection for c, which can abort it.
func (p *Pool) dial(c *Call) (*clientConn, *CallError) {
	ctx, cancel := bounded(context.Background(), p.client.Connect)
	defer cancel()
	if !c.dials(cancel) {
		return nil, &CallError{Phase: Dialing, Err: ErrAborted}
	}
	defer c.dials(nil)
	nc, err := p.endpoint.Dial(ctx, p.endpoint.Network, p.endpoint.Address)
	if err != nil {
		return nil, &CallError{Phase: Dialing, Err: c.because(err)}
	}
	if p.endpoint.TLS == nil {
		return newClientConn(p, nc), nil
	}
	if p.client.TLS > 0 {
		ctx, cancel = bounded(context.Background(), p.client.TLS)
		defer cancel()
		c.dials(cancel)
	}
	secure := tls.Client(nc, p.endpoint.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, &CallError{Phase: Handshaking, Err: c.because(err)}
	}
	return newClientConn(p, secure), nil
}

func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// A clientConn is a connection to an endpoint.
type clientConn struct {
	pool   *Pool
	net    net.Conn
	tls    bool
	socket rawSocket
	born   time.Duration // after the client's epoch
	since  time.Duration // when it became idle
	used   bool

	read, write deadline
	one         [1]byte

	asking reuseAttempt
	raw    syscall.RawConn       // of net, nil if something lies in between
	step   func(fd uintptr) bool // that of asking
}

func newClientConn(p *Pool, nc net.Conn) *clientConn {
	u := &clientConn{pool: p, net: nc, born: p.client.now()}
	_, u.tls = nc.(*tls.Conn)
	u.socket.open(nc)
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		if runtime.GOOS != "windows" {
			u.raw, u.step = u.socket.raw, u.asking.step
		}
	}
	return u
}

// fresh reports whether u is young enough to be used again.
func (u *clientConn) fresh(now time.Duration) bool {
	c := u.pool.client
	return now-u.since < c.IdleFor && (c.MaxAge == 0 || now-u.born < c.MaxAge)
}

// look tells whether something has come that nobody has asked for, be it the end
// of the connection. One that cannot be looked at is never fit.
func (u *clientConn) look() Presence {
	if u.socket.raw == nil {
		return Broken
	}
	return u.socket.look()
}

// pending reports whether TLS has decrypted bytes that have not been read, which
// the socket knows nothing of. There must be no other reader.
func (u *clientConn) pending() bool {
	if !u.tls {
		return false
	}
	u.read.at = 0
	if u.net.SetReadDeadline(passed()) != nil {
		return true
	}
	n, err := u.net.Read(u.one[:])
	return n > 0 || !timedOut(err) || u.net.SetReadDeadline(time.Time{}) != nil
}

// armRead bounds reading; 0 is no bound.
func (u *clientConn) armRead(within time.Duration) { u.armReadAt(u.pool.client.now(), within) }

func (u *clientConn) armReadAt(now, within time.Duration) {
	if within == 0 {
		if u.read.at != 0 {
			u.read.at = 0
			_ = u.net.SetReadDeadline(time.Time{})
		}
		return
	}
	c := u.pool.client
	if at, due := u.read.due(now, within); due {
		u.read.at = at
		_ = u.net.SetReadDeadline(c.epoch.Add(at)) // fails if the connection is closed, as reading will
	}
}

// armWrite bounds writing.
func (u *clientConn) armWrite() {
	c := u.pool.client
	if c.Response == 0 {
		return
	}
	if at, due := u.write.due(c.now(), c.Response); due {
		u.write.at = at
		_ = u.net.SetWriteDeadline(c.epoch.Add(at))
	}
}

func (u *clientConn) close() { _ = u.net.Close() }
