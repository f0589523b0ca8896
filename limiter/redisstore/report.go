package redisstore

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// maxReports is of how many windows it is remembered what was granted
	// elsewhere; about 10 MB if one grant each.
	maxReports = 50_000
	// maxGrants of one window are remembered each by itself; later ones join the
	// last of them, which is then as young as they are.
	maxGrants = 128
	// windowsPerReport windows travel in one script call.
	windowsPerReport = 32
	// grantBytes is how long a grant is on its way: id, permits and age.
	grantBytes = idBytes + 4 + 6
)

// reports are grants that were made in place of Redis, while it could not be
// asked, and that it has not heard of yet.
type reports struct {
	sendLock chan struct{} // held by who is telling Redis
	windows  atomic.Int64  // how many windows there are, to be read in passing
	reported atomic.Int64  // permits that Redis has been told of
	dropped  atomic.Int64  // permits that it never will be

	mu       sync.Mutex // guards what follows; never held over I/O
	byWindow map[windowID]*report
}

// A report is what was granted in one window.
type report struct {
	claim   limiter.Claim
	grants  []grant // oldest first
	sending int     // so many of them are on their way to Redis
}

type grant struct {
	id    [16]byte
	cost  int64
	at    time.Time
	value limiter.Key // where values are counted
}

func newReports() *reports {
	return &reports{sendLock: make(chan struct{}, 1), byWindow: map[windowID]*report{}}
}

// add remembers what p took for claims. When there is no room, what has come
// back by itself makes some; without that, new windows are not remembered.
func (r *reports) add(now time.Time, claims []limiter.Claim, p limiter.Permit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range claims {
		id := windowIDOf(c)
		found := r.byWindow[id]
		if found == nil {
			if len(r.byWindow) >= maxReports && !r.sweepLocked(now) {
				r.dropped.Add(c.Cost)
				continue
			}
			found = &report{}
			r.byWindow[id] = found
			r.windows.Add(1)
		}
		found.claim = c
		found.add(grant{p.ID, c.Cost, now, c.Value})
	}
}

func (r *report) add(g grant) {
	n := len(r.grants)
	if r.claim.Limit.Algorithm == limiter.Distinct { // as many as there are values
		fresh := r.grants[r.sending:]
		if i := slices.IndexFunc(fresh, func(o grant) bool { return o.value == g.value }); i >= 0 {
			r.grants = slices.Delete(r.grants, r.sending+i, r.sending+i+1)
		}
		r.grants = append(r.grants, g)
		return
	}
	if n-r.sending < maxGrants {
		r.grants = append(r.grants, g)
		return
	}
	last := &r.grants[n-1]
	last.id, last.cost, last.at = [16]byte{}, last.cost+g.cost, g.at
	binary.LittleEndian.PutUint64(last.id[:], uint64(g.at.UnixNano())) // of nobody: it cannot be given back
}

// sweepLocked forgets windows of which everything has come back, and reports
// whether there were any among some.
func (r *reports) sweepLocked(now time.Time) bool {
	looked, swept := 0, false
	for id, found := range r.byWindow { // in no order: a look here, a look there
		last := found.grants[len(found.grants)-1]
		if found.sending == 0 && now.Sub(last.at) >= found.claim.Limit.Horizon() {
			delete(r.byWindow, id)
			r.windows.Add(-1)
			swept = true
		}
		if looked++; looked == 16 {
			break
		}
	}
	return swept
}

// withdraw forgets what p took for claims, and reports whether Redis will never hear
// of any of it.
func (r *reports) withdraw(claims []limiter.Claim, p limiter.Permit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	dropped := false
	for _, c := range claims {
		id := windowIDOf(c)
		found := r.byWindow[id]
		if found == nil {
			continue
		}
		fresh := found.grants[found.sending:]
		i := slices.IndexFunc(fresh, func(g grant) bool { return g.id == p.ID })
		if i < 0 {
			continue
		}
		dropped = true
		found.grants = slices.Delete(found.grants, found.sending+i, found.sending+i+1)
		if len(found.grants) == 0 {
			delete(r.byWindow, id)
			r.windows.Add(-1)
		}
	}
	return dropped
}

// hasAny reports whether there is something to tell of a window of claims.
func (r *reports) hasAny(claims []limiter.Claim) bool {
	if r.windows.Load() == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(claims, func(c limiter.Claim) bool { return r.byWindow[windowIDOf(c)] != nil })
}

// startSending is what is to be told of the windows of claims, or of some windows if
// there are none; nothing of what homeOf says cannot travel in one call. It is on its
// way until done or kept is called with it.
func (r *reports) startSending(claims []limiter.Claim, homeOf func(limiter.Claim) slot) []*report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*report
	add := func(found *report) bool {
		if len(out) > 0 && (homeOf(out[0].claim) != homeOf(found.claim) || len(out) == windowsPerReport) {
			return false
		}
		found.sending = len(found.grants)
		out = append(out, found)
		return true
	}
	for _, c := range claims {
		if found := r.byWindow[windowIDOf(c)]; found != nil && found.sending == 0 {
			add(found)
		}
	}
	if claims == nil {
		for _, found := range r.byWindow {
			if !add(found) && len(out) == windowsPerReport {
				break
			}
		}
	}
	return out
}

// remove forgets what Redis has heard of, or never will hear of, and counts it; kept
// has it told again.
func (r *reports) remove(told []*report, count *atomic.Int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range told {
		for _, g := range found.grants[:found.sending] {
			count.Add(g.cost)
		}
		found.grants, found.sending = slices.Delete(found.grants, 0, found.sending), 0
		if len(found.grants) == 0 {
			delete(r.byWindow, windowIDOf(found.claim))
			r.windows.Add(-1)
		}
	}
}

func (r *reports) keep(told []*report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range told {
		found.sending = 0
	}
}

// encode writes the grants that are on their way as the script reads them.
func (r *report) encode(now time.Time) []byte {
	out := make([]byte, 0, grantBytes*r.sending)
	for _, g := range r.grants[:r.sending] {
		out = append(out, g.id[:idBytes]...)
		out = binary.LittleEndian.AppendUint32(out, uint32(g.cost))
		var age [8]byte
		binary.LittleEndian.PutUint64(age[:], uint64(max(0, now.Sub(g.at).Milliseconds())))
		out = append(out, age[:6]...)
		if r.claim.Limit.Algorithm == limiter.Distinct {
			out = append(out, g.value[:valueBytes]...)
		}
	}
	return out
}
