package http1

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Presence is what can be told of the other end of a connection.
type Presence uint8

// What can be told.
const (
	Silent  Presence = iota // it is there as far as anybody knows, and has sent nothing
	Talking                 // it has sent something that has not been read
	Halved                  // it sends nothing more
	Broken                  // the connection is reset
)

// watchAfter is how long an exchange waits for its upstream before it is looked
// whether the client is still there, and then again and again, at intervals that
// grow up to watchMost. Shorter exchanges cost nothing.
const (
	watchAfter = 100 * time.Millisecond
	watchMost  = time.Second
)

// An Aborter ends what somebody waits for. It is called from another goroutine.
type Aborter interface {
	Abort()
}

// A watch says since when an exchange waits, and what is to be done if its client
// leaves meanwhile.
type watch struct {
	since atomic.Int64 // after the server's epoch in ns, and 1; 0 while nothing is watched
	gone  atomic.Bool  // the client was found to have left

	mu   sync.Mutex // held while the client is looked at, and guards what follows
	what Aborter
	next time.Duration // when to look again
}

// Watch lets a.Abort be called when the client leaves before Unwatch: soon, but
// not at once. That costs no goroutine.
func (x *Exchange) Watch(a Aborter) {
	w := &x.conn.watch
	w.mu.Lock()
	w.what, w.next = a, 0
	w.mu.Unlock()
	w.since.Store(int64(x.conn.server.now()) + 1)
}

// Unwatch ends what Watch began. When it returns, Abort is not called any more.
func (x *Exchange) Unwatch() { x.conn.watch.stop() }

// Left reports whether the client was found to have left while Watch was on.
func (x *Exchange) Left() bool { return x.conn.watch.gone.Load() }

func (w *watch) stop() {
	if w.since.Load() == 0 {
		return
	}
	w.since.Store(0)
	w.mu.Lock()
	w.what = nil
	w.mu.Unlock()
}

// sweep looks, until done is closed, at the clients of exchanges that wait.
func (s *Server) sweep(done <-chan struct{}) {
	tick := time.NewTicker(watchAfter)
	defer tick.Stop()
	var all []*conn
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		all = s.current(all[:0])
		now := s.now()
		for _, c := range all {
			if since := c.watch.since.Load(); since != 0 && now-time.Duration(since) >= watchAfter {
				c.sweep(now, now-time.Duration(since))
			}
		}
		clear(all)
	}
}

// sweep looks whether the client has left.
func (c *conn) sweep(now, waits time.Duration) {
	w := &c.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.what == nil || now < w.next {
		return
	}
	w.next = now + min(waits, watchMost)
	p := look(c.fd)
	if p == Broken || p == Halved && c.server.HalfClosed == Leaves {
		w.gone.Store(true)
		w.what.Abort()
		w.what = nil
	}
}
