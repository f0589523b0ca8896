package http1

import (
	"io"
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

// watchDelay is how long an exchange waits for its upstream before it is looked
// whether the client is still there, and then again and again, at intervals that
// grow up to maxWatchDelay. Shorter exchanges cost nothing.
const (
	watchDelay    = 100 * time.Millisecond
	maxWatchDelay = time.Second
	unseen        = -1
)

// An Aborter ends what somebody waits for. It is called from another goroutine.
type Aborter interface {
	Abort()
}

// A watch says since when an exchange waits, and what is to be done if its client
// leaves meanwhile.
type watch struct {
	// since is after the server's epoch in ns, and 1; 0 while nothing is watched, and
	// unseen until the sweep comes by for the first time, so that a short exchange costs no
	// look at the clock.
	since atomic.Int64
	gone  atomic.Bool // the client was found to have left

	sent atomic.Uint32 // pieces of responses that were sent

	mu    sync.Mutex // held while the client is looked at, and guards what follows
	what  Aborter
	next  time.Duration // when to look again
	mute  bool          // the client must not be asked: 100 Continue means something else to it, or nothing
	asked bool
	begun bool          // the final response has begun
	seen  uint32        // what sent was
	still time.Duration // since when it is that; 0 for never looked
}

// request notes which request is in work.
func (w *watch) request(x *Exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute, w.asked, w.begun, w.still = x.Minor == 0 || x.Expects(), false, false, 0
}

// begins notes that the final response begins.
func (w *watch) begins() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// Watch lets a.Abort be called when the client leaves before Unwatch: soon, but
// not at once. That costs no goroutine.
func (x *Exchange) Watch(a Aborter) {
	w := &x.conn.watch
	w.mu.Lock()
	w.what, w.next = a, 0
	w.mu.Unlock()
	w.since.Store(unseen)
}

// Unwatch ends what Watch began. When it returns, Abort is not called any more.
func (x *Exchange) Unwatch() { x.conn.watch.stop() }

// Left reports whether the client was found to have left while Watch was on.
func (x *Exchange) Left() bool { return x.conn.watch.gone.Load() }

// leave aborts what is watched: the client is cut off.
func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.what != nil {
		w.gone.Store(true)
		w.what.Abort()
		w.what = nil
	}
}

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
	tick := time.NewTicker(watchDelay)
	defer tick.Stop()
	var all []*conn
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.date.refresh()
		all = s.current(all[:0])
		now := s.now()
		for _, c := range all {
			switch since := c.watch.since.Load(); {
			case since == 0:
			case since == unseen:
				c.watch.since.CompareAndSwap(unseen, int64(now)+1)
			case now-time.Duration(since) >= watchDelay-watchDelay/10: // ticks are not quite even
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
	w.next = now + min(waits, maxWatchDelay)
	p := look(c.fd)
	if p == Broken || p == Halved && (c.server.HalfClosed == Leaves || c.stalls(now)) {
		w.gone.Store(true)
		w.what.Abort()
		w.what = nil
	}
}

// stalls reports whether a client that sends no more has not been sent anything for
// as long as it may take to read: it might have left, and nothing would tell. At
// first it is asked, by a response that every client skips and one that has left
// answers with a reset (RFC 9110 section 15.2). c.watch.mu is held.
func (c *conn) stalls(now time.Duration) bool {
	w := &c.watch
	if !w.begun && !w.mute && !w.asked {
		w.asked = true
		c.armWrite()
		_, _ = io.WriteString(c.net, "HTTP/1.1 100 Continue\r\n\r\n") // the next look tells whether it has arrived
		w.next = 0
		return false
	}
	sent := w.sent.Load()
	if w.still == 0 || sent != w.seen {
		w.seen, w.still = sent, now
		return false
	}
	within := c.server.Timeouts.Write
	return w.begun && within > 0 && now-w.still >= within
}
