package frontend

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
)

const (
	// maxWindowResets is the number of requests that clients of one address may reset
	// within resetWindow, as long as they are not more than half of all their requests.
	maxWindowResets = 200
	resetWindow     = 10 * time.Second
	// maxResets is the number of requests that an HTTP/2 client may reset on one
	// connection, as long as they are not more than half of all its requests.
	// offenderResets replaces it for addresses with a penalty.
	maxResets      = 200
	offenderResets = 20
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

// record counts a request and its resets, 0 or 1. Without a reset it counts only for
// addresses that are tracked. It reports whether addr has a penalty.
func (r *resetTracker) record(addr netip.Prefix, now time.Time, resets int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byAddr[addr]
	if of == nil && resets == 0 {
		return false
	}
	if of == nil {
		r.evict(now)
		of = &addrResets{windowStart: now}
		r.byAddr[addr] = of
	}
	of.record(now, resets)
	return of.isPenalized(now)
}

// record counts one request and its resets, 0 or 1.
func (a *addrResets) record(now time.Time, resets int) {
	if now.Sub(a.windowStart) > resetWindow {
		a.windowStart, a.requests, a.resets = now, 0, 0
	}
	a.requests++
	a.resets += resets
	if a.resets > maxWindowResets && a.resets > a.requests/2 {
		if !a.isPenalized(now) {
			a.penalties = 0
		}
		a.penalties++
		a.penaltyEnd = now.Add(penaltyTTL)
		a.windowStart, a.requests, a.resets = now, 0, 0
	}
}

func (a *addrResets) isPenalized(now time.Time) bool {
	return a.penalties > 0 && now.Before(a.penaltyEnd)
}

// pause returns how long a new connection from addr is delayed.
func (r *resetTracker) pause(addr netip.Prefix, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.byAddr[addr]
	if of == nil || !of.isPenalized(now) {
		return 0
	}
	return min(minPause<<min(of.penalties-1, 10), maxPause)
}

// evict removes addresses without a penalty whose window has ended, and then arbitrary
// ones, until there is room for another address.
func (r *resetTracker) evict(now time.Time) {
	if len(r.byAddr) < maxTracked {
		return
	}
	for addr, of := range r.byAddr {
		if !of.isPenalized(now) && now.Sub(of.windowStart) > resetWindow {
			delete(r.byAddr, addr)
		}
	}
	for addr := range r.byAddr {
		if len(r.byAddr) < maxTracked {
			return
		}
		delete(r.byAddr, addr)
	}
}

// delay delays a new connection, at most until ctx is done.
func (r *resetTracker) delay(ctx context.Context, c net.Conn) {
	if r.isEmpty() {
		return // the usual case
	}
	select {
	case <-time.After(r.pause(r.prefixOf(c), time.Now())):
	case <-ctx.Done():
	}
}

func (r *resetTracker) isEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byAddr) == 0
}

// prefixOf returns the address of the client of c, or its /64 network.
func (r *resetTracker) prefixOf(c net.Conn) netip.Prefix {
	return limiter.Subscriber(http1.PeerOf(c).Addr())
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
		r.tracker.record(r.address(), time.Now(), 0)
	}
}

// Reset implements http2.ResetCounter.
func (r *resetCounter) Reset() (most int) {
	if r.tracker.record(r.address(), time.Now(), 1) {
		return offenderResets
	}
	return maxResets
}
