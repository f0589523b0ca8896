package frontend

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/http2"
)

const (
	// maxWindowResets is the number of requests that clients of one address may reset
	// within resetWindow, as long as they are not more than half of all their requests.
	maxWindowResets = 200
	resetWindow     = 10 * time.Second
	// penaltyTTL is how long a penalty lasts.
	penaltyTTL = time.Minute
	// maxTracked is the maximum number of tracked addresses. Above it, some are
	// removed.
	maxTracked = 4096
	// minPause and maxPause bound how long a new connection from an address with a
	// penalty is delayed. The delay doubles with each penalty.
	minPause = 100 * time.Millisecond
	maxPause = 2 * time.Second
)

// A resetTracker tracks addresses whose clients reset most of their requests (rapid
// reset, CVE-2023-44487) on several connections in succession. Such an address gets a
// penalty: its new connections are delayed and may have fewer resets. A /64 network
// counts as one address in IPv6. An address uses memory only after its first reset.
type resetTracker struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	byAddr map[netip.Prefix]*addrResets
}

type addrResets struct {
	windowStart      time.Time // start of the current counts
	requests, resets int
	penalties        int
	penaltyEnd       time.Time // when they are forgotten
}

func newResetTracker() *resetTracker { return &resetTracker{byAddr: map[netip.Prefix]*addrResets{}} }

// recordCompleted counts a request that was not reset. It counts only for addresses
// that are tracked. It reports whether addr has a penalty.
func (o *resetTracker) recordCompleted(addr netip.Prefix, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.byAddr[addr]
	if of == nil {
		return false
	}
	of.record(now, 0)
	return of.isPenalized(now)
}

// recordReset counts a request that was reset. It reports whether addr has a penalty.
func (o *resetTracker) recordReset(addr netip.Prefix, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.byAddr[addr]
	if of == nil {
		o.evict(now)
		of = &addrResets{windowStart: now}
		o.byAddr[addr] = of
	}
	of.record(now, 1)
	return of.isPenalized(now)
}

// record counts one request and its resets, 0 or 1.
func (of *addrResets) record(now time.Time, resets int) {
	if now.Sub(of.windowStart) > resetWindow {
		of.windowStart, of.requests, of.resets = now, 0, 0
	}
	of.requests++
	of.resets += resets
	if of.resets > maxWindowResets && of.resets > of.requests/2 {
		if !of.isPenalized(now) {
			of.penalties = 0
		}
		of.penalties++
		of.penaltyEnd = now.Add(penaltyTTL)
		of.windowStart, of.requests, of.resets = now, 0, 0
	}
}

func (of *addrResets) isPenalized(now time.Time) bool {
	return of.penalties > 0 && now.Before(of.penaltyEnd)
}

// pause returns how long a new connection from addr is delayed.
func (o *resetTracker) pause(addr netip.Prefix, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.byAddr[addr]
	if of == nil || !of.isPenalized(now) {
		return 0
	}
	return min(minPause<<min(of.penalties-1, 10), maxPause)
}

// evict removes addresses without a penalty whose window has ended, and then arbitrary
// ones, until there is room for another address.
func (o *resetTracker) evict(now time.Time) {
	if len(o.byAddr) < maxTracked {
		return
	}
	for addr, of := range o.byAddr {
		if !of.isPenalized(now) && now.Sub(of.windowStart) > resetWindow {
			delete(o.byAddr, addr)
		}
	}
	for addr := range o.byAddr {
		if len(o.byAddr) < maxTracked {
			return
		}
		delete(o.byAddr, addr)
	}
}

// delay delays a new connection, at most until ctx is done.
func (o *resetTracker) delay(ctx context.Context, c net.Conn) {
	if o.isEmpty() {
		return // the usual case
	}
	pause := o.pause(o.prefixOf(c), time.Now())
	if pause == 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (o *resetTracker) isEmpty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byAddr) == 0
}

// prefixOf returns the address of the client of c, or its /64 network.
func (o *resetTracker) prefixOf(c net.Conn) netip.Prefix {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // a unix socket
	}
	addr := unmap(ap.Addr())
	p, _ := addr.Prefix(min(addr.BitLen(), 64))
	return p
}

// A resetCounter counts the requests and resets of one connection for a resetTracker.
type resetCounter struct {
	tracker *resetTracker
	address func() netip.Prefix
}

func (s *Server) newResetCounter(c net.Conn) http2.ResetCounter {
	return &resetCounter{s.resetTracker, sync.OnceValue(func() netip.Prefix { return s.resetTracker.prefixOf(c) })}
}

// Completed implements http2.ResetCounter.
func (r *resetCounter) Completed() {
	if !r.tracker.isEmpty() { // the usual case is that it is
		r.tracker.recordCompleted(r.address(), time.Now())
	}
}

// Reset implements http2.ResetCounter.
func (r *resetCounter) Reset() (most int) {
	if r.tracker.recordReset(r.address(), time.Now()) {
		return offenderResets
	}
	return maxResets
}
