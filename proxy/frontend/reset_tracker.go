package frontend

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxWindowResets is how many requests one address may take back within resetWindow,
	// as long as those are not more than half of all.
	maxWindowResets = 200
	resetWindow     = 10 * time.Second
	// penaltyTTL is how long an offence is remembered.
	penaltyTTL = time.Minute
	// maxTracked is how many addresses are watched at a time. Beyond it some are
	// forgotten.
	maxTracked = 4096
	// minPause and maxPause bound how long a new connection of an offender
	// waits; the pause doubles with each offence.
	minPause = 100 * time.Millisecond
	maxPause = 2 * time.Second
)

// A resetTracker is the addresses whose clients take back most of what they ask
// (rapid reset, CVE-2023-44487) on one connection after another. Their next
// connections wait, and end sooner. A network of 64 bits is one address in IPv6. An
// address costs something only once it has taken back a request.
type resetTracker struct {
	mu     sync.Mutex // guards what follows; never held over I/O
	byAddr map[netip.Prefix]*addrResets
}

type addrResets struct {
	windowStart      time.Time // when this count began
	requests, resets int
	penalties        int
	penaltyEnd       time.Time // when they are forgotten
}

func newResetTracker() *resetTracker { return &resetTracker{byAddr: map[netip.Prefix]*addrResets{}} }

// recordCompleted takes note of a request that has ended at now and was not taken back. It
// counts only for an address that is watched already. It reports whether addr stands
// as an offender.
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

// recordReset takes note of a request that was taken back at now. It reports whether addr
// stands as an offender.
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

// record counts a request, and so many resets of it.
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

// pause is how long a new connection from addr has to wait.
func (o *resetTracker) pause(addr netip.Prefix, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.byAddr[addr]
	if of == nil || !of.isPenalized(now) {
		return 0
	}
	return min(minPause<<min(of.penalties-1, 10), maxPause)
}

// evict forgets whoever has nothing that stands, and if there are none of those,
// somebody.
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

// delay lets a connection that was just opened wait for its pause, no longer
// than ctx.
func (o *resetTracker) delay(ctx context.Context, c net.Conn) {
	if o.isEmpty() {
		return // as always, and then it costs nothing
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

// prefixOf is the address of c's other end, as offenders are counted.
func (o *resetTracker) prefixOf(c net.Conn) netip.Prefix {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // a socket of this machine
	}
	addr := unmap(ap.Addr())
	p, _ := addr.Prefix(min(addr.BitLen(), 64))
	return p
}
