package http1

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A PeerState is what can be told of the other end of a connection.
type PeerState uint8

// What can be told.
const (
	PeerOpen       PeerState = iota // it is there as far as anybody knows, and has sent nothing
	PeerReadable                    // it has sent something that has not been read
	PeerHalfClosed                  // it sends nothing more
	PeerReset                       // the connection is reset
)

// monitorInterval is how long an exchange waits for its upstream before it is looked
// whether the client is still there, and then again and again, at intervals that
// grow up to maxMonitorInterval. Shorter exchanges cost nothing.
const (
	monitorInterval    = 100 * time.Millisecond
	maxMonitorInterval = time.Second
	notYetSeen         = -1
)

// An Aborter ends what somebody waits for. It is called from another goroutine.
type Aborter interface {
	Abort()
}

// A clientMonitor says since when an exchange waits, and what is to be done if its client
// leaves meanwhile.
type clientMonitor struct {
	// waitingSince is after the server's epoch in ns, and 1; 0 while nothing is watched, and
	// unseen until the sweep comes by for the first time, so that a short exchange costs no
	// look at the clock.
	waitingSince atomic.Int64
	clientGone   atomic.Bool // the client was found to have left

	writes atomic.Uint32 // pieces of responses that were sent

	mu              sync.Mutex // held while the client is looked at, and guards what follows
	aborter         Aborter
	nextCheck       time.Duration // when to look again
	noProbe         bool          // the client must not be asked: 100 Continue means something else to it, or nothing
	probed          bool
	responseStarted bool          // the final response has begun
	lastWrites      uint32        // what sent was
	unchangedSince  time.Duration // since when it is that; 0 for never looked
}

// reset notes which request is in work.
func (w *clientMonitor) reset(x *Exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noProbe, w.probed, w.responseStarted, w.unchangedSince = x.Minor == 0 || x.Expects(), false, false, 0
}

// startResponse notes that the final response begins.
func (w *clientMonitor) startResponse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.responseStarted = true
}

// MonitorClient lets a.Abort be called when the client leaves before Unwatch: soon, but
// not at once. That costs no goroutine.
func (x *Exchange) MonitorClient(a Aborter) {
	w := &x.conn.monitor
	w.mu.Lock()
	w.aborter, w.nextCheck = a, 0
	w.mu.Unlock()
	w.waitingSince.Store(notYetSeen)
}

// StopMonitoringClient ends what Watch began. When it returns, Abort is not called any more.
func (x *Exchange) StopMonitoringClient() { x.conn.monitor.stop() }

// ClientGone reports whether the client was found to have left while Watch was on.
func (x *Exchange) ClientGone() bool { return x.conn.monitor.clientGone.Load() }

// abort aborts what is watched: the client is cut off.
func (w *clientMonitor) abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aborter != nil {
		w.clientGone.Store(true)
		w.aborter.Abort()
		w.aborter = nil
	}
}

func (w *clientMonitor) stop() {
	if w.waitingSince.Load() == 0 {
		return
	}
	w.waitingSince.Store(0)
	w.mu.Lock()
	w.aborter = nil
	w.mu.Unlock()
}

// monitorClients looks, until done is closed, at the clients of exchanges that wait.
func (s *Server) monitorClients(done <-chan struct{}) {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	var all []*conn
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.date.refresh()
		all = s.appendConns(all[:0])
		now := s.now()
		for _, c := range all {
			switch since := c.monitor.waitingSince.Load(); {
			case since == 0:
			case since == notYetSeen:
				c.monitor.waitingSince.CompareAndSwap(notYetSeen, int64(now)+1)
			case now-time.Duration(since) >= monitorInterval-monitorInterval/10: // ticks are not quite even
				c.checkClient(now, now-time.Duration(since))
			}
		}
		clear(all)
	}
}

// checkClient looks whether the client has left.
func (c *conn) checkClient(now, waits time.Duration) {
	w := &c.monitor
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aborter == nil || now < w.nextCheck {
		return
	}
	w.nextCheck = now + min(waits, maxMonitorInterval)
	p := peerState(c.socket)
	if p == PeerReset || p == PeerHalfClosed && (c.server.HalfClose == AbortOnHalfClose || c.clientStalled(now)) {
		w.clientGone.Store(true)
		w.aborter.Abort()
		w.aborter = nil
	}
}

// clientStalled reports whether a client that sends no more has not been sent anything for
// as long as it may take to read: it might have left, and nothing would tell. At
// first it is asked, by a response that every client skips and one that has left
// answers with a reset (RFC 9110 section 15.2). c.watch.mu is held.
func (c *conn) clientStalled(now time.Duration) bool {
	w := &c.monitor
	if !w.responseStarted && !w.noProbe && !w.probed {
		w.probed = true
		c.setWriteDeadline()
		_, _ = io.WriteString(c.net, "HTTP/1.1 100 Continue\r\n\r\n") // the next look tells whether it has arrived
		w.nextCheck = 0
		return false
	}
	sent := w.writes.Load()
	if w.unchangedSince == 0 || sent != w.lastWrites {
		w.lastWrites, w.unchangedSince = sent, now
		return false
	}
	within := c.server.Timeouts.Write
	return w.responseStarted && within > 0 && now-w.unchangedSince >= within
}
