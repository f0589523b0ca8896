package redisstore

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
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
	// maxTold is the maximum number of reported grants that can still be refunded, about 250 bytes each.
	maxTold = 50_000
)

// reports are the permits that were granted in place of Redis while it was unreachable,
// and that were not reported yet.
type reports struct {
	sendLock chan struct{} // has capacity 1; held while reports are sent
	telling  sync.Mutex    // held from when it is too late to withdraw grants until their notes are queued
	windows  atomic.Int64  // number of windows, and of refunds that failed; readable without mu
	reported atomic.Int64  // permits that were reported
	dropped  atomic.Int64  // permits that are never reported

	mu       sync.Mutex // guards the fields below; never held during I/O
	byWindow map[windowID]*report
	order    *list.List               // the same reports: to find one in a map that was large takes as long as it was
	told     map[grantID]countedGrant // what Redis was told of
	toldIDs  []grantID                // the keys of told, at most maxTold; then a ring
	nextTold int                      // index in toldIDs of the oldest
	refunds  []lateGrant              // that failed, at most maxTold
}

// A report is what was granted in one window.
type report struct {
	claim   limiter.Claim
	grants  []grant // oldest first
	sending int     // number of grants that are being sent
	told    bool    // Redis was told of those
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

// A grantID identifies a grant in one window.
type grantID struct {
	window windowID
	permit [16]byte
}

// A countedGrant says when a grant counts in Redis, by the clock of Redis, and when it expires, by that of this process.
type countedGrant struct{ at, expires time.Time }

func newReports() *reports {
	return &reports{sendLock: make(chan struct{}, 1), byWindow: map[windowID]*report{}, order: list.New(), told: map[grantID]countedGrant{}}
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

// add adds g, and removes what has expired: what is merged later would keep it counted. Of a value it keeps the two uses
// before, the first of them without its ID, as few in lua/algorithm/distinct_uses.lua: if g is withdrawn, they still count.
func (r *report) add(g grant) {
	hasValues, horizon := r.claim.Limit.Algorithm.HasValues(), r.claim.Limit.Horizon()
	for i, uses := len(r.grants)-1, 0; hasValues && i >= r.sending; i-- {
		if o := &r.grants[i]; o.value == g.value {
			if uses++; uses == 2 {
				o.id = [16]byte{}
			} else if uses > 2 {
				o.at = time.Time{}
			}
		}
	}
	pending := slices.DeleteFunc(r.grants[r.sending:], func(o grant) bool { return g.at.Sub(o.at) >= horizon })
	if r.grants = r.grants[:r.sending+len(pending)]; hasValues || len(pending) < maxGrants { // three for each value
		r.grants = append(r.grants, g)
		return
	}
	last := &pending[len(pending)-1]
	last.id, last.cost, last.at, last.refund = [16]byte{}, min(last.cost-last.refund+g.cost, limiter.MaxCount), g.at, 0
	binary.LittleEndian.PutUint64(last.id[:], uint64(g.at.UnixNano())) // no permit has this ID, so it cannot be refunded
}

// sweepLocked removes expired windows among the next few, and reports whether there were any.
func (r *reports) sweepLocked(now time.Time) (swept bool) {
	for range min(16, r.order.Len()) {
		found := r.order.Front().Value.(*report)
		if found.sending == 0 && now.Sub(found.grants[len(found.grants)-1].at) >= found.claim.Limit.Horizon() {
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

// withdraw removes what p took for claims, as far as it is pending or being sent. It returns the claims of what was
// not.
func (r *reports) withdraw(claims []limiter.Claim, p limiter.Permit) (others []limiter.Claim) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(claims), func(c limiter.Claim) bool { return r.withdrawLocked(&c, p) })
}

func (r *reports) withdrawLocked(c *limiter.Claim, p limiter.Permit) bool {
	found := r.byWindow[windowIDOf(c)]
	if found == nil {
		return false
	}
	i := slices.IndexFunc(found.grants, func(g grant) bool { return g.id == p.ID && g.refund == 0 })
	if i < 0 || i < found.sending && found.told {
		return false
	}
	if g := &found.grants[i]; i < found.sending || c.Cost < g.cost {
		g.refund = c.Cost
		return true
	}
	if found.grants = slices.Delete(found.grants, i, i+1); len(found.grants) == 0 {
		r.deleteLocked(found)
	}
	return true
}

// renew makes what p took for claims as young as now, as far as it is pending. It returns the claims of what is not.
func (r *reports) renew(now time.Time, claims []limiter.Claim, p limiter.Permit) (others []limiter.Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(claims), func(c limiter.Claim) bool {
		i, found := -1, r.byWindow[windowIDOf(&c)]
		if found != nil {
			i = slices.IndexFunc(found.grants, func(g grant) bool { return g.id == p.ID })
		}
		if i < 0 || i < found.sending {
			return false
		}
		renewed := found.grants[i]
		renewed.at = now
		found.grants = append(slices.Delete(found.grants, i, i+1), renewed)
		return true
	})
}

// toldAt returns when Redis counts what p took for c. It is false if that has expired by now, or Redis was not told of
// it, or of too much else since.
func (r *reports) toldAt(now time.Time, c *limiter.Claim, p limiter.Permit) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told, found := r.told[grantID{windowIDOf(c), p.ID}]
	return told.at, found && now.Before(told.expires)
}

// knows reports whether what p took for c is pending, or Redis was told of it.
func (r *reports) knows(c *limiter.Claim, p limiter.Permit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := windowIDOf(c)
	_, told := r.told[grantID{id, p.ID}]
	return told || r.byWindow[id] != nil && slices.ContainsFunc(r.byWindow[id].grants, func(g grant) bool { return g.id == p.ID })
}

// tellLocked records what Redis was told of.
func (r *reports) tellLocked(id grantID, counted countedGrant) {
	if len(r.toldIDs) < maxTold {
		r.toldIDs = append(r.toldIDs, id)
	} else {
		delete(r.told, r.toldIDs[r.nextTold])
		r.toldIDs[r.nextTold], r.nextTold = id, (r.nextTold+1)%maxTold
	}
	r.told[id] = counted
}

// addRefund records a refund that failed.
func (r *reports) addRefund(g lateGrant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refunds) < maxTold && g.tries <= maxTries {
		r.refunds = append(r.refunds, g)
		r.windows.Add(1)
	}
}

// takeRefunds returns some of the refunds that failed: few, so that requests need not wait for them.
func (r *reports) takeRefunds() (some []lateGrant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.refunds), maxClaims)
	some, r.refunds = r.refunds[:n:n], r.refunds[n:]
	r.windows.Add(int64(-n))
	return some
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
	add := func(found *report) {
		if len(out) == 0 || len(out) < windowsPerReport && partSlot(&out[0].claim) == partSlot(&found.claim) {
			found.sending = len(found.grants)
			out = append(out, found)
		}
	}
	for _, c := range claims {
		if found := r.byWindow[windowIDOf(&c)]; found != nil && found.sending == 0 {
			add(found)
		}
	}
	for next, looked := r.order.Front(), 0; claims == nil && next != nil && looked < windowsPerReport; next, looked = next.Next(), looked+1 {
		add(next.Value.(*report))
	}
	return out
}

// tell records that reports were sent at now, when it was redisNow, in ms since 1970, in Redis. It returns the
// grants that have not expired. From now on they cannot be withdrawn.
func (r *reports) tell(sent []*report, now time.Time, redisNow int64) (told []toldGrant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range sent {
		found.told = true
		for i := range found.grants[:found.sending] {
			g := &found.grants[i]
			if now.Sub(g.at) >= found.claim.Limit.Horizon() {
				continue
			}
			at := redisNow
			if !countsFromReport(&found.claim) {
				at -= g.age(now)
			}
			t := toldGrant{found.claim, limiter.Permit{ID: g.id, At: time.UnixMilli(at)}, g.refund}
			t.claim.Cost, t.claim.Value = g.cost, g.value
			told = append(told, t)
			r.tellLocked(grantID{windowIDOf(&t.claim), g.id}, countedGrant{t.permit.At, g.at.Add(t.claim.Limit.Horizon())})
		}
	}
	return told
}

// countsFromReport reports whether Redis counts what was granted earlier among the permits of the time of the report:
// its counter may have started anew in between.
func countsFromReport(c *limiter.Claim) bool {
	return isCounter(c) && (c.RedissonName != "" || !c.Limit.Algorithm.IsNumbered())
}

// remove removes reports that Redis was told of, or that never will be sent, and adds their permits to count; keep
// makes them pending again.
func (r *reports) remove(sent []*report, count *atomic.Int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range sent {
		for _, g := range found.grants[:found.sending] {
			count.Add(g.cost)
		}
		found.grants, found.sending, found.told = slices.Delete(found.grants, 0, found.sending), 0, false
		if len(found.grants) == 0 {
			r.deleteLocked(found)
		}
	}
}

// A toldGrant is a grant that Redis was told of.
type toldGrant struct {
	claim  limiter.Claim
	permit limiter.Permit // with the time at which Redis counts it
	refund int64          // what was withdrawn of it before
}

func (r *reports) keep(unsent []*report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range unsent {
		found.sending = 0
		r.order.MoveToBack(found.element) // its node may be away: others are not kept waiting
	}
}

// age returns how old g is at now, in milliseconds.
func (g *grant) age(now time.Time) int64 { return max(0, now.Sub(g.at).Milliseconds()) }

// encode encodes the grants that are being sent for the script.
func (r *report) encode(now time.Time) []byte {
	out := make([]byte, 0, grantBytes*r.sending)
	for _, g := range r.grants[:r.sending] {
		out = append(out, g.id[:idBytes]...)
		out = binary.LittleEndian.AppendUint32(out, uint32(g.cost))
		out = appendTime(out, milliseconds(g.age(now)))
		if r.claim.Limit.Algorithm.HasValues() {
			out = append(out, g.value[:valueBytes]...)
		}
	}
	return out
}

// sendReports sends the pending reports about the windows of claims or, if claims is nil,
// about all windows. Only one caller at a time sends; the others find nothing left to
// send.
func (s *Store) sendReports(ctx context.Context, claims []limiter.Claim) error {
	select {
	case s.reports.sendLock <- struct{}{}:
		defer func() { <-s.reports.sendLock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		reports := s.reports.startSending(claims, s.partSlot)
		if len(reports) == 0 {
			return nil
		}
		if err := s.deliver(ctx, reports); err != nil {
			return err
		}
	}
}

// deliver sends reports, then notes what was told of Noted limits, and then refunds what was withdrawn before.
// If that fails, the permits stay taken. What can be withdrawn is not noted, and what cannot any more, is found by a
// return that begins later. Reports are pending until both is done.
func (s *Store) deliver(ctx context.Context, reports []*report) error {
	now := time.Now()
	redisNow, err := s.sendReport(ctx, reports, now)
	switch {
	case errors.Is(err, ErrRedisson): // a retry would fail too, and block the other reports
		s.reports.remove(reports, &s.reports.dropped)
		return nil
	case err != nil:
		s.reports.keep(reports)
		return err
	}
	s.reports.telling.Lock()
	told := s.reports.tell(reports, now, redisNow)
	var noted []*call
	for i := range told {
		if t := &told[i]; t.refund < t.claim.Cost || byNote(t.claim) {
			noted = append(noted, s.startNotes([]limiter.Claim{t.claim}, t.permit)...)
		}
	}
	s.reports.telling.Unlock()
	waitFor(ctx, noted)
	var refunds []lateGrant
	for i := range told {
		if t := &told[i]; t.refund > 0 {
			t.claim.Cost = t.refund
			refunds = append(refunds, lateGrant{claims: []limiter.Claim{t.claim}, permit: t.permit})
		}
	}
	for some := range slices.Chunk(refunds, maxClaims) { // as many as one script call makes
		s.refundAll(some)
	}
	s.reports.remove(reports, &s.reports.reported)
	return nil
}

// sendReport sends reports in one call, as they are at now. It returns the time of Redis, in ms since 1970.
func (s *Store) sendReport(ctx context.Context, reports []*report, now time.Time) (int64, error) {
	claims, encoded := make([]limiter.Claim, len(reports)), make([]any, len(reports))
	s.reports.mu.Lock()
	for i, r := range reports {
		claims[i], encoded[i] = r.claim, r.encode(now)
	}
	s.reports.mu.Unlock()
	return s.change(ctx, "report", claims, encoded...)
}
