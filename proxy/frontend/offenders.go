package frontend

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// offence is how many requests one address may take back within offenceWithin,
	// as long as those are not more than half of all.
	offence       = 200
	offenceWithin = 10 * time.Second
	// offenceStands is how long an offence is remembered.
	offenceStands = time.Minute
	// mostOffenders is how many addresses are watched at a time. Beyond it some are
	// forgotten.
	mostOffenders = 4096
	// firstPause and longestPause bound how long a new connection of an offender
	// waits; the pause doubles with each offence.
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
)

// An offenders is the addresses whose clients take back most of what they ask
// (rapid reset, CVE-2023-44487) on one connection after another. Their next
// connections wait, and end sooner. A network of 64 bits is one address in IPv6. An
// address costs something only once it has taken back a request.
type offenders struct {
	mu   sync.Mutex // guards what follows; never held over I/O
	seen map[netip.Prefix]*offender
}

type offender struct {
	since            time.Time // when this count began
	requests, resets int
	offences         int
	until            time.Time // when they are forgotten
}

func newOffenders() *offenders { return &offenders{seen: map[netip.Prefix]*offender{}} }

// answered takes note of a request that has ended at now and was not taken back. It
// counts only for an address that is watched already. It reports whether addr stands
// as an offender.
func (o *offenders) answered(addr netip.Prefix, now time.Time) bool {
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
func (o *offenders) reset(addr netip.Prefix, now time.Time) bool {
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
	if now.Sub(of.since) > offenceWithin {
		of.since, of.requests, of.resets = now, 0, 0
	}
	of.requests++
	of.resets += resets
	if of.resets > offence && of.resets > of.requests/2 {
		if !of.stands(now) {
			of.offences = 0
		}
		of.offences++
		of.until = now.Add(offenceStands)
		of.since, of.requests, of.resets = now, 0, 0
	}
}

func (of *offender) stands(now time.Time) bool { return of.offences > 0 && now.Before(of.until) }

// pause is how long a new connection from addr has to wait.
func (o *offenders) pause(addr netip.Prefix, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.seen[addr]
	if of == nil || !of.stands(now) {
		return 0
	}
	return min(firstPause<<min(of.offences-1, 10), longestPause)
}

// makeRoom forgets whoever has nothing that stands, and if there are none of those,
// somebody.
func (o *offenders) makeRoom(now time.Time) {
	if len(o.seen) < mostOffenders {
		return
	}
	for addr, of := range o.seen {
		if !of.stands(now) && now.Sub(of.since) > offenceWithin {
			delete(o.seen, addr)
		}
	}
	for addr := range o.seen {
		if len(o.seen) < mostOffenders {
			return
		}
		delete(o.seen, addr)
	}
}

// delay lets a connection that was just opened wait for its pause, no longer
// than ctx.
func (o *offenders) delay(ctx context.Context, c net.Conn) {
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

func (o *offenders) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen) == 0
}

// of is the address of c's other end, as offenders are counted.
func (o *offenders) of(c net.Conn) netip.Prefix {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Prefix{} // a socket of this machine
	}
	addr := unmapped(ap.Addr())
	p, _ := addr.Prefix(min(addr.BitLen(), 64))
	return p
}
