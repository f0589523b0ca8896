package frontend

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// offence is how many requests one address may take back within offenceWindow,
	// as long as those are not more than half of all.
	offence       = 200
	offenceWindow = 10 * time.Second
	// offenceTTL is how long an offence is remembered.
	offenceTTL = time.Minute
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
	mu   sync.Mutex // guards what follows; never held over I/O
	seen map[netip.Prefix]*offender
}

type offender struct {
	since            time.Time // when this count began
	requests, resets int
	offences         int
	until            time.Time // when they are forgotten
}

func newResetTracker() *resetTracker { return &resetTracker{seen: map[netip.Prefix]*offender{}} }

// answered takes note of a request that has ended at now and was not taken back. It
// counts only for an address that is watched already. It reports whether addr stands
// as an offender.
func (o *resetTracker) answered(addr netip.Prefix, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.seen[addr]
	if of == nil {
		return false
	}
	of.count(now, 0)
	return of.stands(now)
}

// reset takes note of a request that was taken back at now. It reports whether addr
// stands as an offender.
func (o *resetTracker) reset(addr netip.Prefix, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.seen[addr]
	if of == nil {
		o.makeRoom(now)
		of = &offender{since: now}
		o.seen[addr] = of
	}
	of.count(now, 1)
	return of.stands(now)
}

// count counts a request, and so many resets of it.
func (of *offender) count(now time.Time, resets int) {
	if now.Sub(of.since) > offenceWindow {
		of.since, of.requests, of.resets = now, 0, 0
	}
	of.requests++
	of.resets += resets
	if of.resets > offence && of.resets > of.requests/2 {
		if !of.stands(now) {
			of.offences = 0
		}
		of.offences++
		of.until = now.Add(offenceTTL)
		of.since, of.requests, of.resets = now, 0, 0
	}
}

func (of *offender) stands(now time.Time) bool { return of.offences > 0 && now.Before(of.until) }

// pause is how long a new connection from addr has to wait.
func (o *resetTracker) pause(addr netip.Prefix, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.seen[addr]
	if of == nil || !of.stands(now) {
		return 0
	}
	return min(minPause<<min(of.offences-1, 10), maxPause)
}

// makeRoom forgets whoever has nothing that stands, and if there are none of those,
// somebody.
func (o *resetTracker) makeRoom(now time.Time) {
	if len(o.seen) < maxTracked {
		return
	}
	for addr, of := range o.seen {
		if !of.stands(now) && now.Sub(of.since) > offenceWindow {
			delete(o.seen, addr)
		}
	}
	for addr := range o.seen {
		if len(o.seen) < maxTracked {
			return
		}
		delete(o.seen, addr)
	}
}

// delay lets a connection that was just opened wait for its pause, no longer
// than ctx.
func (o *resetTracker) delay(ctx context.Context, c net.Conn) {
	if o.none() {
		return // as always, and then it costs nothing
	}
	pause := o.pause(o.of(c), time.Now())
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

func (o *resetTracker) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen) == 0
}

// of is the address of c's other end, as offenders are counted.
func (o *resetTracker) of(c net.Conn) netip.Prefix {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // a socket of this machine
	}
	addr := unmapped(ap.Addr())
	p, _ := addr.Prefix(min(addr.BitLen(), 64))
	return p
}
