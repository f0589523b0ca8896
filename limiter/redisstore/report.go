package redisstore

import (
	"container/list"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

const (
	// maxReports is the maximum number of windows with pending reports, about 10 MB
	// with one grant each.
	maxReports = 50_000
	// maxGrants is the maximum number of separate grants of a window. Later ones are
	// merged into the last one, with the later time.
	maxGrants = 128
	// windowsPerReport is the maximum number of windows in one script call.
	windowsPerReport = 32
	// grantBytes is the length of an encoded grant: ID, permits and age.
	grantBytes = idBytes + 4 + 6
)

// reports are the permits that were granted in place of Redis while it was unreachable,
// and that were not reported yet.
type reports struct {
	sendLock chan struct{} // has capacity 1; held while reports are sent
	windows  atomic.Int64  // number of windows, readable without mu
	reported atomic.Int64  // permits that were reported
	dropped  atomic.Int64  // permits that are never reported

	mu       sync.Mutex // guards the fields below; never held during I/O
	byWindow map[windowID]*report
	order    *list.List // the same reports: to find one in a map that was large takes as long as it was
}

// A report is what was granted in one window.
type report struct {
	claim   limiter.Claim
	grants  []grant // oldest first
	sending int     // number of grants that are being sent
	element *list.Element
}

type grant struct {
	id    [16]byte
	cost  int64
	at    time.Time
	value limiter.Key // for Distinct
	// refund is what of cost was withdrawn while the grant was being sent, or the part that was withdrawn. Redis
	// is told of the whole grant, and then to refund that.
	refund int64
}

func newReports() *reports {
	return &reports{sendLock: make(chan struct{}, 1), byWindow: map[windowID]*report{}, order: list.New()}
}

// add records what p took for claims. If there are too many windows, it removes expired
// ones; if there are none, grants in new windows are dropped.
func (r *reports) add(now time.Time, claims []limiter.Claim, p limiter.Permit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range claims {
		id := windowIDOf(&c)
		found := r.byWindow[id]
		if found == nil {
			if len(r.byWindow) >= maxReports && !r.sweepLocked(now) {
				r.dropped.Add(c.Cost)
				continue
			}
			found = &report{}
			r.byWindow[id], found.element = found, r.order.PushBack(found)
			r.windows.Add(1)
		}
		found.claim = c
		found.add(grant{id: p.ID, cost: c.Cost, at: now, value: c.Value})
	}
}

func (r *report) add(g grant) {
	n := len(r.grants)
	if r.claim.Limit.Algorithm.HasValues() { // as many as there are values
		pending := r.grants[r.sending:]
		if i := slices.IndexFunc(pending, func(o grant) bool { return o.value == g.value }); i >= 0 {
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
	last.id, last.cost, last.at, last.refund = [16]byte{}, last.cost+g.cost, g.at, 0
	binary.LittleEndian.PutUint64(last.id[:], uint64(g.at.UnixNano())) // no permit has this ID, so it cannot be refunded
}

// sweepLocked removes expired windows among the next few, and reports whether there were any.
func (r *reports) sweepLocked(now time.Time) (swept bool) {
	for range min(16, r.order.Len()) {
		found := r.order.Front().Value.(*report)
		last := found.grants[len(found.grants)-1]
		if found.sending == 0 && now.Sub(last.at) >= found.claim.Limit.Horizon() {
			r.deleteLocked(found)
			swept = true
		} else {
			r.order.MoveToBack(found.element)
		}
	}
	return swept
}

// deleteLocked removes the report about a window.
func (r *reports) deleteLocked(found *report) {
	delete(r.byWindow, windowIDOf(&found.claim))
	r.order.Remove(found.element)
	r.windows.Add(-1)
}

// withdraw removes what p took for claims, and reports whether any of it was still
// pending or being sent.
func (r *reports) withdraw(claims []limiter.Claim, p limiter.Permit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	withdrawn := false
	for _, c := range claims {
		id := windowIDOf(&c)
		found := r.byWindow[id]
		if found == nil {
			continue
		}
		i := slices.IndexFunc(found.grants, func(g grant) bool { return g.id == p.ID && g.refund == 0 })
		if i < 0 {
			continue
		}
		withdrawn = true
		if g := &found.grants[i]; i < found.sending || c.Cost < g.cost {
			g.refund = c.Cost
			continue
		}
		found.grants = slices.Delete(found.grants, i, i+1)
		if len(found.grants) == 0 {
			r.deleteLocked(found)
		}
	}
	return withdrawn
}

// hasAny reports whether a window of claims has a pending report.
func (r *reports) hasAny(claims []limiter.Claim) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(claims, func(c limiter.Claim) bool { return r.byWindow[windowIDOf(&c)] != nil })
}

// startSending returns the reports about the windows of claims or, if claims is nil,
// about some windows. All of them have the same slotOf, so that one script call can send
// them. They count as being sent until remove or keep is called.
func (r *reports) startSending(claims []limiter.Claim, partSlot func(*limiter.Claim) slot) []*report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*report
	add := func(found *report) bool {
		if len(out) > 0 && (partSlot(&out[0].claim) != partSlot(&found.claim) || len(out) == windowsPerReport) {
			return false
		}
		found.sending = len(found.grants)
		out = append(out, found)
		return true
	}
	for _, c := range claims {
		if found := r.byWindow[windowIDOf(&c)]; found != nil && found.sending == 0 {
			add(found)
		}
	}
	next := r.order.Front()
	for looked := 0; claims == nil && next != nil && looked < windowsPerReport; looked++ {
		add(next.Value.(*report))
		next = next.Next()
	}
	return out
}

// remove removes reports that were sent, or never will be, and adds their permits to
// count; keep makes them pending again. It returns what was withdrawn of them.
func (r *reports) remove(sent []*report, count *atomic.Int64) (withdrawn []withdrawal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range sent {
		for _, g := range found.grants[:found.sending] {
			count.Add(g.cost)
			if g.refund > 0 {
				c := found.claim
				c.Cost, c.Value = g.refund, g.value
				withdrawn = append(withdrawn, withdrawal{c, limiter.Permit{ID: g.id, At: g.at}})
			}
		}
		found.grants, found.sending = slices.Delete(found.grants, 0, found.sending), 0
		if len(found.grants) == 0 {
			r.deleteLocked(found)
		}
	}
	return withdrawn
}

// A withdrawal is what Redis has to refund of a grant that it was told of.
type withdrawal struct {
	claim  limiter.Claim
	permit limiter.Permit
}

func (r *reports) keep(unsent []*report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range unsent {
		found.sending = 0
		r.order.MoveToBack(found.element) // its node may be away: others are not kept waiting
	}
}

// encode encodes the grants that are being sent for the script.
func (r *report) encode(now time.Time) []byte {
	out := make([]byte, 0, grantBytes*r.sending)
	for _, g := range r.grants[:r.sending] {
		out = append(out, g.id[:idBytes]...)
		out = binary.LittleEndian.AppendUint32(out, uint32(g.cost))
		var age [8]byte
		binary.LittleEndian.PutUint64(age[:], uint64(max(0, now.Sub(g.at).Milliseconds())))
		out = append(out, age[:6]...)
		if r.claim.Limit.Algorithm.HasValues() {
			out = append(out, g.value[:valueBytes]...)
		}
	}
	return out
}
