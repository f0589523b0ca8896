package http1

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A TunnelEnd is one side of a tunnel. Unread holds bytes that were received from Conn already.
type TunnelEnd struct {
	Conn   net.Conn
	Unread []byte
}

const (
	// goingAwayWait is how long the ends of a tunnel may take to close it after it was told to end.
	goingAwayWait = time.Second
	// goingAway is a WebSocket frame of a server that closes with status 1001 (RFC 6455 section 7.4.1).
	goingAway = "\x88\x02\x03\xe9"
)

// Tunnels copy bytes between clients that have switched to WebSocket and their upstreams. The zero value
// is ready for use.
type Tunnels struct {
	mu      sync.Mutex // guards what follows
	open    map[*tunnel]struct{}
	changed chan struct{} // closed when the next tunnel ends; nil if nobody waits
}

type tunnel struct {
	client, target TunnelEnd
	leaving        atomic.Bool // it was told to end
}

// Run copies bytes in both directions until both have ended or one has failed. Then it closes both
// connections.
func (t *Tunnels) Run(client, target TunnelEnd) {
	one := &tunnel{client: client, target: target}
	t.mu.Lock()
	if t.open == nil {
		t.open = map[*tunnel]struct{}{}
	}
	t.open[one] = struct{}{}
	t.mu.Unlock()
	one.run()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, one)
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Drain waits until no tunnel is left. When ctx is done, it closes those that are left with the WebSocket status
// 1001, going away.
func (t *Tunnels) Drain(ctx context.Context) {
	if t.wait(ctx, (*tunnel).leave) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goingAwayWait)
	defer cancel()
	if !t.wait(ctx, (*tunnel).close) {
		t.wait(context.Background(), nil)
	}
}

// wait waits until no tunnel is left. When ctx is done, it calls end for each that is left, and returns false.
func (t *Tunnels) wait(ctx context.Context, end func(*tunnel)) bool {
	for {
		t.mu.Lock()
		if len(t.open) == 0 {
			t.mu.Unlock()
			return true
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			t.mu.Lock()
			for one := range t.open {
				end(one)
			}
			t.mu.Unlock()
			return false
		}
	}
}

func (t *tunnel) run() {
	defer t.close()
	var both sync.WaitGroup
	both.Go(func() { t.copy(t.client.Conn, t.target, []byte(goingAway)) })
	t.copy(t.target.Conn, t.client, maskedGoingAway())
	both.Wait()
}

// leave makes both directions end with a frame that closes the WebSocket. An end that is in the middle of
// a frame of its own sees the connection end.
func (t *tunnel) leave() {
	t.leaving.Store(true)
	_ = t.client.Conn.SetReadDeadline(pastTime())
	_ = t.target.Conn.SetReadDeadline(pastTime())
}

func (t *tunnel) close() {
	_ = t.client.Conn.Close()
	_ = t.target.Conn.Close()
}

// copy copies bytes in one direction. When that direction ends, the other one stays open.
func (t *tunnel) copy(to net.Conn, from TunnelEnd, last []byte) {
	_, err := to.Write(from.Unread)
	if err == nil {
		_, err = io.Copy(to, from.Conn) // uses splice(2) between two sockets on Linux
	}
	if t.leaving.Load() && timedOut(err) {
		_, err = to.Write(last)
	}
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		if t.leaving.Load() { // a close with unread bytes would destroy what was sent
			_ = to.SetReadDeadline(time.Now().Add(goingAwayWait / 2))
			_, _ = io.Copy(io.Discard, to)
		}
		return
	}
	_ = to.Close()
	_ = from.Conn.Close()
}

// maskedGoingAway is goingAway of a client, which masks its frames (RFC 6455 section 5.3).
func maskedGoingAway() []byte {
	b := append([]byte(goingAway), 0, 0, 0, 0)
	status := [2]byte{b[2], b[3]}
	_, _ = rand.Read(b[2:6]) // never fails
	b[1] |= 0x80
	return append(b[:6], status[0]^b[2], status[1]^b[3])
}
