package http1

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// The clients of exchanges that wait are checked every monitorInterval. The checks of
// one exchange begin after it has waited for that long, and their intervals grow up to
// maxMonitorInterval. Exchanges that are shorter are not checked.
const (
	monitorInterval    = 100 * time.Millisecond
	maxMonitorInterval = time.Second
	notYetSeen         = -1
)

// An Aborter is something that can be aborted while another goroutine waits for it.
// Abort must be safe for concurrent use.
type Aborter interface {
	Abort()
}

// A clientMonitor detects that the client of an exchange is gone while the exchange
// waits, for an upstream for example, and then aborts what it waits for.
// Server.monitorClients runs the checks for all connections that are listed in
// Server.monitored, so that monitoring needs no goroutine per exchange, and idle
// connections cost nothing.
type clientMonitor struct {
	// waitingSince is 0 if the exchange is not monitored. It is notYetSeen until
	// monitorClients has visited the connection for the first time, so that a short
	// exchange does not need to read the clock. Afterwards it is the time of that visit
	// since the server's epoch in ns, plus 1.
	waitingSince atomic.Int64
	clientGone   atomic.Bool // the client was found to be gone

	writes atomic.Uint32 // number of writes of final responses to the client

	mu       sync.Mutex // held during a check; guards the fields below
	listed   bool       // the connection is in Server.monitored, until monitorClients finds that it does not wait
	aborters []Aborter  // what waits: the Context of the request, a Call, or both
	// A check uses these fields only if there is an aborter.
	nextCheck      time.Duration // time of the next check
	noProbe        bool          // do not probe: HTTP/1.0, or the client waits for a real 100 Continue
	probed         bool
	writesBefore   uint32        // writes when the request arrived: if they are more, the response has started
	lastWrites     uint32        // value of writes at the last check
	unchangedSince time.Duration // time since which writes has been lastWrites; 0 before the first check
}

// reset prepares the monitor for the request of x. The exchange is not monitored yet,
// so that no check is using the fields.
func (c *clientMonitor) reset(x *Exchange) {
	c.noProbe, c.probed, c.writesBefore, c.unchangedSince = x.Minor == 0 || x.Expects(), false, c.writes.Load(), 0
}

// beginWrite must be called before each write of the final response. It waits for a
// check that may be about to write a probe, and then sets the deadline, as that does.
// Later checks send no probe.
func (c *conn) beginWrite() {
	if w := &c.monitor; w.writes.Add(1) == w.writesBefore+1 && w.waitingSince.Load() != 0 {
		w.waitForCheck()
	}
	c.setWriteDeadline()
}

// waitForCheck waits until no check is under way.
func (c *clientMonitor) waitForCheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
}

// MonitorClient calls a.Abort if the client is found to be gone before
// StopMonitoringClient(a) is called or the exchange has ended. Others that wait for the
// same exchange stay monitored. Detection takes some time; see monitorInterval. No
// goroutine is started.
func (e *Exchange) MonitorClient(a Aborter) {
	w := &e.conn.monitor
	w.mu.Lock()
	if len(w.aborters) == 0 {
		w.waitingSince.Store(notYetSeen) // before a check can find the aborter; see beginWrite
		w.nextCheck = 0
	}
	if !slices.Contains(w.aborters, a) {
		w.aborters = append(w.aborters, a)
	}
	if !w.listed {
		w.listed = true
		e.conn.server.monitored.Add(e.conn)
	}
	w.mu.Unlock()
}

// StopMonitoringClient ends monitoring for a. a.Abort is not called after it has
// returned.
func (e *Exchange) StopMonitoringClient(a Aborter) {
	w := &e.conn.monitor
	if w.waitingSince.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.aborters, a); i >= 0 {
		w.aborters = slices.Delete(w.aborters, i, i+1)
	}
	if len(w.aborters) == 0 {
		w.waitingSince.Store(0)
	}
}

// ClientGone reports whether the client was found to be gone while it was monitored.
func (e *Exchange) ClientGone() bool { return e.conn.monitor.clientGone.Load() }

// abort aborts what the exchange waits for: the server has closed the connection.
func (c *clientMonitor) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abortLocked()
}

// abortLocked aborts all that waits, because the client is gone.
func (c *clientMonitor) abortLocked() {
	for _, a := range c.aborters {
		c.clientGone.Store(true)
		a.Abort()
	}
	c.clearLocked()
}

// stop ends monitoring at the end of an exchange.
func (c *clientMonitor) stop() {
	if c.waitingSince.Load() == 0 {
		return
	}
	c.waitingSince.Store(0)
	c.mu.Lock()
	c.clearLocked()
	c.mu.Unlock()
}

func (c *clientMonitor) clearLocked() {
	clear(c.aborters)
	c.aborters = c.aborters[:0]
}

// monitorClients checks the clients of all exchanges that wait, until done is closed.
func (s *Server) monitorClients(done <-chan struct{}) {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.date.At(time.Now())
		s.checkClients()
	}
}

// checkClients is one round of checks.
func (s *Server) checkClients() {
	now := s.now()
	for _, c := range s.monitored.All() {
		switch since := c.monitor.waitingSince.Load(); {
		case since == 0:
			c.unlist()
		case since == notYetSeen:
			c.monitor.waitingSince.CompareAndSwap(notYetSeen, int64(now)+1)
		case now-time.Duration(since) >= monitorInterval-monitorInterval/10: // tolerates ticks that come a little early
			c.checkClient(now, now-time.Duration(since))
		}
	}
}

// unlist removes the connection from Server.monitored, unless its exchange waits again.
func (c *conn) unlist() {
	w := &c.monitor
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listed = w.waitingSince.Load() != 0; !w.listed {
		c.server.monitored.Remove(c)
	}
}

// checkClient checks whether the client is gone. waited is how long the exchange has
// waited.
func (c *conn) checkClient(now, waited time.Duration) {
	w := &c.monitor
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.aborters) == 0 || now < w.nextCheck {
		return
	}
	w.nextCheck = now + min(waited, maxMonitorInterval)
	if p := c.socket.State(); c.looksGone(p) || p == socket.HalfClosed && c.clientStalled(now) {
		w.abortLocked()
	}
}

// looksGone reports whether a client whose end of the connection is in this state is gone.
func (c *conn) looksGone(p socket.State) bool {
	return p == socket.Reset || p == socket.HalfClosed && c.server.HalfClose == AbortOnHalfClose
}

// clientStalled reports whether a half-closed client has to be given up because nothing
// was written to it for Timeouts.Write. Such a client may be gone without any sign of
// it. Before the response starts, clientStalled probes the client once with 100
// Continue: a client ignores such a response, and the socket of one that is gone
// replies with a reset (RFC 9110 section 15.2). The caller holds c.monitor.mu.
func (c *conn) clientStalled(now time.Duration) bool {
	w := &c.monitor
	sent := w.writes.Load()
	responseStarted := sent != w.writesBefore
	if !responseStarted && !w.noProbe && !w.probed && c.socket.CanWrite() { // no client may block the checks of all others
		w.probed = true
		c.setWriteDeadline()
		_ = c.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) // the next check sees the reset, if there is one
		w.nextCheck = 0
		return false
	}
	if w.unchangedSince == 0 || sent != w.lastWrites {
		w.lastWrites, w.unchangedSince = sent, now
		return false
	}
	timeout := c.server.Timeouts.Write
	return responseStarted && timeout > 0 && now-w.unchangedSince >= timeout
}

// A Context is the context of a request. It is canceled when the client is gone.
// Monitoring the client begins with the first call of Done, so that a Context that is
// only passed on costs nothing.
type Context struct {
	Exchange *Exchange // of the request; nil if its owner notices by itself that the client is gone

	inner atomic.Pointer[cancelableContext] // nil until somebody has called Done, or the client is gone
}

// A cancelableContext is a context with the function that cancels it.
type cancelableContext struct {
	context.Context
	cancel context.CancelFunc
}

// observe returns the context that is canceled, and whether it was made for this call.
func (c *Context) observe() (inner *cancelableContext, first bool) {
	if inner = c.inner.Load(); inner == nil {
		inner = new(cancelableContext)
		inner.Context, inner.cancel = context.WithCancel(context.Background())
		first = c.inner.CompareAndSwap(nil, inner)
	}
	return c.inner.Load(), first
}

// Deadline implements context.Context. There is no deadline.
func (*Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context. There are no values, but that by which package context finds what is
// canceled: contexts derived from c, which have called Done, need no goroutine.
func (c *Context) Value(key any) any {
	if inner := c.inner.Load(); inner != nil {
		return inner.Value(key)
	}
	return nil
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	inner, first := c.observe()
	if first && c.Exchange != nil {
		c.Exchange.MonitorClient(c)
	}
	return inner.Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	if inner := c.inner.Load(); inner != nil {
		return inner.Err()
	}
	return nil
}

// Observed reports whether Done was called, or the context was canceled. Such a context
// must not be reused for another request.
func (c *Context) Observed() bool { return c.inner.Load() != nil }

// Abort implements Aborter. It cancels c because the client is gone.
func (c *Context) Abort() {
	inner, _ := c.observe()
	inner.cancel()
}
