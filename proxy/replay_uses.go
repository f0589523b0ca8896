package proxy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// uses follow the requests of a Replay until what they were for is used: a code is entered, for example. They
// tell what a limit with return_on refuses whose code was used in the log, and so do budgets beside it.
type uses struct {
	trackers []*useTracker
	// unbounded counts what the limits would count if they refused nothing, to find the rates that would have
	// been enough.
	unbounded   *limiter.Memory
	maxSubjects int
}

const (
	// maxSubjects is the number of subjects that are followed, if the store has no bound of its own; with one, it is that
	// of keys, divided by subjectShare.
	maxSubjects  = 4 << 20
	subjectShare = 4
	// maxOpen is the number of requests that are followed for a subject and a limit, as many as stores note.
	maxOpen = 64
	// maxTrackedLimits is the number of limits by which subjects are counted.
	maxTrackedLimits = 32
)

func newUses(g *generation, room limiter.MemoryOptions) *uses {
	u := &uses{maxSubjects: maxSubjects}
	if room.MaxKeys > 0 {
		u.maxSubjects = min(maxSubjects, room.MaxKeys/subjectShare)
	}
	if slices.ContainsFunc(g.limits, func(l *limit) bool { return l.Return != nil }) {
		u.unbounded = limiter.NewMemory(room)
	}
	return u
}

// A useTracker follows the subjects of one return_on, which several limits may have.
type useTracker struct {
	of        *config.Return
	window    time.Duration // the longest of its limits
	subjects  map[limiter.Key]*subjectUse
	tallies   []*useTally
	most      int // number of subjects
	responses int64
	unread    int64
}

// A subjectUse is what was sent for a subject, and for which limits something was sent, refused, used, and refused
// although it was used: a bit for each.
type subjectUse struct {
	open                       []openUse
	sent, refused, used, wrong uint32
}

// An openUse is a request that was not used so far, under one limit.
type openUse struct {
	at      time.Time
	tally   *useTally
	key     *KeyUse
	refused bool
	needs   []Floor // what All would have to be for it to pass
}

// A useTally accumulates a UseTally.
type useTally struct {
	UseTally
	of        *limit
	tracker   *useTracker // nil if nothing is known of uses
	subject   *key.Spec   // of tracker, as the route reads it
	bit       uint32      // in a subjectUse
	budget    *limit      // whose prices are those of the requests; nil if there is none
	window    time.Duration
	unbounded map[time.Duration]*limiter.Limit // by window; see uses.unbounded
	keys      map[limiter.Key]*KeyUse
}

// tally returns a new tally of a limit on a route; nil if it is neither a budget nor has return_on.
func (u *uses) tally(l *limit, on *route) *useTally {
	if l.Return == nil && l.Prices == nil {
		return nil
	}
	t := &useTally{of: l, keys: map[limiter.Key]*KeyUse{}, unbounded: map[time.Duration]*limiter.Limit{}}
	for _, other := range append([]*limit{l}, on.limits...) {
		if other.Return != nil && t.tracker == nil {
			t.tracker, t.subject = u.tracker(other), other.Subject()
		}
		if other.Prices != nil && t.budget == nil {
			t.budget, t.Priced, t.Unit, t.Decimals = other, true, other.Prices.Unit, other.Prices.Decimals
		}
	}
	if t.tracker != nil {
		t.By, t.window = t.tracker.of.Route, t.tracker.window
		t.Subject = t.tracker.of.Key.Name
		if origins := t.tracker.of.Key.Origins(); len(origins) > 0 {
			t.From = origins[0].String()
		}
		if l.Return != nil {
			t.window = l.longestWindow()
		}
		if n := len(t.tracker.tallies); n < maxTrackedLimits {
			t.bit = 1 << n
		}
		t.tracker.tallies = append(t.tracker.tallies, t)
	}
	return t
}

// longestWindow returns the longest window of l.
func (l *limit) longestWindow() (longest time.Duration) {
	for _, w := range l.allWindows() {
		longest = max(longest, w.Rate.Window)
	}
	return longest
}

// tracker returns the tracker of the return_on of l.
func (u *uses) tracker(l *limit) *useTracker {
	for _, t := range u.trackers {
		if t.of.Route == l.Return.Route && t.of.Subject.Name == l.Return.Subject.Name && t.of.Status == l.Return.Status {
			t.window = max(t.window, l.longestWindow())
			return t
		}
	}
	u.trackers = append(u.trackers, &useTracker{of: l.Return, window: l.longestWindow(), most: u.maxSubjects, subjects: map[limiter.Key]*subjectUse{}})
	return u.trackers[len(u.trackers)-1]
}

// count counts a request under each limit that decided it.
func (u *uses) count(now time.Time, rt *routeTally, v *visit) {
	x := &v.x
	if x.isRepeat || x.exempt || v.refusedBy != nil || v.err != nil && !errors.Is(v.err, errRefused) {
		return
	}
	if !slices.ContainsFunc(rt.limits, func(l routeLimitTally) bool { return l.uses != nil }) {
		return
	}
	rule := x.refundRule(&forwardOutcome{result: v.result()})
	for i, l := range rt.limits {
		t := l.uses
		if t == nil || v.skipped.has(i) || rule.applies(l.of) || v.err != nil && (l.of.Mode == config.Shadow || !x.refusedBy(l.of)) {
			continue
		}
		if result := x.resultOf(l.of); result == resultAllowed || result == resultRefused {
			u.countOne(now, t, l.of, v)
		}
	}
}

// refusedBy reports whether l refused x.
func (x *exchange) refusedBy(l *limit) bool { return x.resultOf(l) == resultRefused }

// countOne counts a request under one limit, l, of t.
func (u *uses) countOne(now time.Time, t *useTally, l *limit, v *visit) {
	x := &v.x
	set := x.setOf(l)
	from := set.indexOf(l)
	if from < 0 {
		return // a limit in shadow mode for which the request has no valid claim
	}
	use := openUse{at: now, tally: t, refused: x.refusedBy(l), key: t.key(set.claims[from].Key, func() string { return v.label(l) })}
	cost := x.costOf(t.budget)
	if t.budget != nil && v.lacks(t.budget) {
		t.Unpriced++
	}
	if v.unsent {
		t.Unsent++
	}
	use.each(func(c *UseCount) {
		c.Sent++
		c.Cost += cost
		if use.refused {
			c.Refused++
			c.Saved += cost
		}
		if l.Prices != nil && v.err == nil {
			c.Spent += cost
		}
	})
	if t.tracker == nil {
		return
	}
	subject := keyOf(x.extracted.keys, t.subject)
	if subject == nil {
		return
	}
	if l.Return != nil {
		use.needs = u.need(t, set, from, subject.Key)
		use.each(func(c *UseCount) { c.raise(use.needs, Floor{All: 1}) })
	}
	t.tracker.add(subject.Key, use)
}

// lacks reports whether the log lacks what is needed to evaluate a limit.
func (v *visit) lacks(l *limit) bool {
	i := slices.IndexFunc(v.route.limits, func(other *limit) bool { return other.ID == l.ID })
	return i >= 0 && v.skipped.has(i)
}

// setOf returns the claims of x that those on l are among.
func (x *exchange) setOf(l *limit) *claimSet {
	if l.Mode == config.Shadow {
		return &x.shadows
	}
	return &x.claims
}

// costOf returns what x costs by the prices of a budget; 0 if it is nil, or its prices are unknown.
func (x *exchange) costOf(budget *limit) int64 {
	if budget == nil {
		return 0
	}
	set := x.setOf(budget)
	i := slices.IndexFunc(set.windows, func(w *window) bool { return w.of.ID == budget.ID }) // a common limit has another limit for each route
	if i < 0 {
		return 0
	}
	return set.claims[i].Cost
}

// each changes the counts that the request is one of: those of its key, and of all keys.
func (o *openUse) each(change func(c *UseCount)) {
	change(&o.tally.UseCount)
	change(&o.key.UseCount)
}

// need returns the counts of rates under which a request would pass, if the limit had refused none before. It
// counts the request for that.
func (u *uses) need(t *useTally, set *claimSet, from int, subject limiter.Key) (all []Floor) {
	var claims []limiter.Claim
	for i := from; i < len(set.claims) && set.windows[i].of == set.windows[from].of && set.claims[i].Key == set.claims[from].Key; i++ {
		c := set.claims[i]
		c.Limit, c.Value = t.unboundedLimit(c.Limit.Rate.Window), subject
		claims = append(claims, c)
		all = append(all, Floor{Window: limiter.WindowName(c.Limit.Rate.Window)})
	}
	var d limiter.Decision
	if err := u.unbounded.Take(context.Background(), claims, &d); err != nil {
		return nil
	}
	for i, o := range d.Outcomes {
		all[i].All = limiter.MaxCount - o.Remaining
	}
	return all
}

// unboundedLimit returns a limit of that window that refuses nothing, and otherwise counts as t does.
func (t *useTally) unboundedLimit(window time.Duration) *limiter.Limit {
	l := t.unbounded[window]
	if l == nil {
		conversion := cmp.Or(t.of.Conversion, 100) // with 100 % nothing is granted for what was used
		l = &limiter.Limit{Name: t.of.ID + ":unbounded:" + limiter.WindowName(window), Rate: limiter.Rate{Count: limiter.MaxCount, Window: window}, Algorithm: limiter.Conversion, Conversion: conversion, Noted: true}
		t.unbounded[window] = l
	}
	return l
}

// add adds a request for a subject.
func (t *useTracker) add(subject limiter.Key, use openUse) {
	s := t.subjects[subject]
	if s == nil {
		if len(t.subjects) >= t.most {
			use.tally.Untracked++
			return
		}
		s = &subjectUse{}
		t.subjects[subject] = s
	}
	if len(s.open) >= maxOpen*len(t.tallies) {
		s.open = slices.Delete(s.open, 0, 1)
	}
	s.open = append(s.open, use)
	first(&s.sent, use.tally.bit, &use.tally.Subjects)
	if use.refused {
		first(&s.refused, use.tally.bit, &use.tally.SubjectsRefused)
	}
}

// first sets a bit, and counts it if it was not set.
func first(bits *uint32, bit uint32, count *int64) {
	if *bits&bit == 0 && bit != 0 {
		*bits |= bit
		*count++
	}
}

// settle records a response that returns permits.
func (u *uses) settle(now time.Time, v *visit) {
	x := &v.x
	if x.exempt || x.isRepeat || x.keepsPermits {
		return
	}
	var settled []*useTracker // several limits may have one return_on
	for i := range x.route.permitReturns {
		p := &x.route.permitReturns[i]
		t := u.tracker(p.of)
		if !p.status.Has(x.outcome.result.Status) || slices.Contains(settled, t) {
			continue
		}
		settled = append(settled, t)
		t.responses++
		if k := keyOf(x.extracted.keys, p.key); k != nil {
			u.use(now, t, k.Key)
		} else {
			t.unread++
		}
	}
}

// use records that something was used that was sent for a subject.
func (u *uses) use(now time.Time, t *useTracker, subject limiter.Key) {
	s := t.subjects[subject]
	if s == nil {
		return
	}
	for i := range s.open {
		o := &s.open[i]
		if now.Sub(o.at) >= o.tally.window {
			continue
		}
		o.each(func(c *UseCount) {
			c.Used++
			if o.refused {
				c.Wrong++
			}
			c.raise(o.needs, Floor{Used: 1})
		})
		first(&s.used, o.tally.bit, &o.tally.SubjectsUsed)
		if o.refused {
			first(&s.wrong, o.tally.bit, &o.tally.SubjectsWrong)
		}
	}
	s.open = nil
	for _, tally := range t.tallies {
		_, _ = u.unbounded.Return(context.Background(), slices.Collect(maps.Values(tally.unbounded)), subject) // a store in memory does not fail
	}
}
