package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/rounds"
)

func TestShare_IsAPartOfAtLeastOne(t *testing.T) {
	for _, c := range []struct {
		count, burst int64
		n            int
		rate, most   int64
	}{{100, 0, 4, 25, 25}, {3, 0, 4, 1, 1}, {10, 0, 3, 3, 3}, {10, 0, 0, 10, 10}, {100, 50, 4, 25, 12}, {100, 2, 4, 25, 1}} {
		l := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: c.count, Window: time.Minute}}
		if c.burst > 0 {
			l.Algorithm, l.Burst = limiter.GCRA, c.burst
		}
		part := l.Share(c.n)
		if part.Rate.Count != c.rate || part.Capacity() != c.most || part.Rate.Window != time.Minute {
			t.Errorf("the share of %d/1m burst %d for %d is %v burst %d", c.count, c.burst, c.n, part.Rate, part.Burst)
		}
	}
}

func TestShare_OfWhatEachCountsByItselfIsAllOfIt(t *testing.T) {
	l := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 8, Window: time.Minute}, Scope: limiter.PerClient}
	if part := l.Share(4); part.Rate.Count != 8 {
		t.Errorf("the share is %v, want 8/1m", part.Rate)
	}
	d := newFallbackMemory(t, limiter.TokenBucket, 8, 4)
	d.claim.Limit.Scope = limiter.PerClient
	d.told(1, 7, 0)
	d.want(7)
}

// A fallbackMemory is a Memory that takes over, by a clock that the test sets.
type fallbackMemory struct {
	*limiter.Memory
	t     *testing.T
	now   time.Time
	claim limiter.Claim
	n     int
	// behind is how far the store's clock is behind.
	behind time.Duration
}

func newFallbackMemory(t *testing.T, a limiter.Algorithm, count int64, n int) *fallbackMemory {
	d := &fallbackMemory{t: t, now: time.UnixMilli(1_800_000_000_000), n: n}
	d.Memory = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return d.now }})
	d.claim = limiter.Claim{
		Limit: &limiter.Limit{Name: "l", Algorithm: a, Rate: limiter.Rate{Count: count, Window: 10 * time.Second}},
		Key:   limiter.KeyOf("k"), Cost: 1,
	}
	return d
}

// told notes what the store said: a grant under id, or a refusal for id 0.
func (f *fallbackMemory) told(id byte, left int64, wait time.Duration) {
	said := limiter.Decision{Allowed: id != 0, At: f.now.Add(-f.behind), Outcomes: []limiter.Outcome{{Allowed: id != 0, Remaining: left, Wait: wait}}}
	if id != 0 {
		said.Permit = f.permit(id)
	}
	f.Mirror([]limiter.Claim{f.claim}, &said, f.n)
}

// permit is one of the store for what it grants now.
func (f *fallbackMemory) permit(id byte) limiter.Permit {
	return limiter.Permit{ID: [16]byte{id}, At: f.now.Add(-f.behind)}
}

// share is a claim for so many permits of this process's share.
func (f *fallbackMemory) share(cost int64) limiter.Claim {
	share, c := f.claim.Limit.Share(f.n), f.claim
	c.Limit, c.Cost = &share, cost
	return c
}

// grants is how many the share lets pass one after the other.
func (f *fallbackMemory) grants() int64 {
	f.t.Helper()
	c := f.share(1)
	var said limiter.Decision
	for n := int64(0); ; n++ {
		if err := f.Take(f.t.Context(), []limiter.Claim{c}, &said); err != nil {
			f.t.Fatal(err)
		}
		if !said.Allowed {
			return n
		}
	}
}

func (f *fallbackMemory) want(n int64) {
	f.t.Helper()
	if got := f.grants(); got != n {
		f.t.Errorf("%s: %d pass, want %d", f.claim.Limit.Algorithm, got, n)
	}
}

// rated are the algorithms that count against a rate.
func rated() []limiter.Algorithm {
	return []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA}
}

// The share is 10 permits. If more were granted than that, nothing is left of it.
func TestNote_WhatWasGrantedCountsAgainstTheShare(t *testing.T) {
	for _, a := range append(rated(), limiter.Concurrent) {
		for granted, left := range map[byte]int64{4: 36, 30: 10} {
			d := newFallbackMemory(t, a, 40, 4)
			for i := range granted {
				d.told(i+1, left, 0)
			}
			d.want(max(10-int64(granted), 0))
		}
	}
}

// What the others had is not to be had once more.
func TestNote_NoMoreThanThePartOfWhatWasLeft(t *testing.T) {
	for _, a := range rated() {
		d := newFallbackMemory(t, a, 40, 4)
		d.told(1, 8, 0)
		d.want(2)
		d = newFallbackMemory(t, a, 40, 4)
		d.told(0, 0, time.Second)
		d.want(0)
	}
}

// A refusal holds until the time that it named, not longer.
func TestNote_RefusalEndsWhenItSaid(t *testing.T) {
	d := newFallbackMemory(t, limiter.TokenBucket, 1, 4)
	d.told(0, 0, 3*time.Second)
	d.now = d.now.Add(2999 * time.Millisecond)
	d.want(0)
	d.now = d.now.Add(time.Millisecond)
	d.want(1)

	d = newFallbackMemory(t, limiter.TokenBucket, 40, 4)
	d.told(0, 0, 3*time.Second) // 39 others may come back later
	d.now = d.now.Add(3 * time.Second)
	d.want(1)
	d.now = d.now.Add(7 * time.Second)
	d.want(9)
}

// A node that had all of a rate goes on at its share of it, and not after hours.
func TestNote_GCRAFlowsOn(t *testing.T) {
	d := newFallbackMemory(t, limiter.GCRA, 40, 4)
	for i := range 4000 {
		d.told(byte(1+i%200), 0, 0)
		d.now = d.now.Add(250 * time.Millisecond)
	}
	d.want(0)
	d.now = d.now.Add(time.Second)
	d.want(1)
}

func TestNote_IsGivenBack(t *testing.T) {
	for _, a := range append(rated(), limiter.Concurrent) {
		d := newFallbackMemory(t, a, 40, 4)
		for i := range byte(10) {
			d.told(i+1, 39, 0)
		}
		d.now = d.now.Add(time.Millisecond)
		d.MirrorRefund([]limiter.Claim{d.claim}, d.permit(3), d.n)
		d.want(1)
	}
}

func TestNote_BanHolds(t *testing.T) {
	d := newFallbackMemory(t, limiter.TokenBucket, 40, 4)
	said := limiter.Decision{Outcomes: []limiter.Outcome{{Banned: true, Wait: time.Minute}}}
	d.Mirror([]limiter.Claim{d.claim}, &said, 4)
	d.now = d.now.Add(59 * time.Second)
	d.want(0)
	d.now = d.now.Add(time.Second)
	d.want(10)
}

// New keys are noted in half of the room; the rest is for those that come while
// the store is away.
func TestNote_FillsHalf(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 1000})
	l := &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1, Window: time.Hour}}
	said := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true}}, Permit: limiter.Permit{ID: [16]byte{1}}}
	for i := range 5000 {
		m.Mirror([]limiter.Claim{{Limit: l, Key: limiter.KeyOf(string(rune(i))), Cost: 1}}, &said, 1)
	}
	if keys, _ := m.Keys(); keys != 500 {
		t.Errorf("%d keys are noted, want 500", keys)
	}
	fresh := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("fresh"), Cost: 1}}
	var d limiter.Decision
	if err := m.Take(t.Context(), fresh, &d); err != nil || !d.Allowed {
		t.Errorf("a new key has no room: %v %+v", err, d)
	}
}

func TestNote_DoesNotAllocate(t *testing.T) {
	d := newFallbackMemory(t, limiter.TokenBucket, 10, 4)
	claims := []limiter.Claim{d.claim}
	said := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 3}}, Permit: limiter.Permit{ID: [16]byte{1}}}
	next := func() {
		d.now = d.now.Add(time.Second)
		d.Mirror(claims, &said, 4)
	}
	for range 30 {
		next()
	}
	if n := rounds.Allocations(100, next); n > 0 {
		t.Errorf("%v allocations a decision, want 0", n)
	}
}

// What Note adds to each decision of a shared store.
func BenchmarkNote(b *testing.B) {
	for _, a := range rated() {
		b.Run(a.String(), func(b *testing.B) {
			m := limiter.NewMemory(limiter.MemoryOptions{})
			l := &limiter.Limit{Name: "l", Algorithm: a, Rate: limiter.Rate{Count: 100, Window: time.Second}}
			claims := []limiter.Claim{{Limit: l, Cost: 1}}
			said := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 50}}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				claims[0].Key = limiter.Key{byte(i), byte(i>>8) % 4}
				said.Permit.ID[0], said.Permit.ID[1] = byte(i), byte(i>>8)
				m.Mirror(claims, &said, 4)
			}
		})
	}
}

// A second outage goes on from what was granted here in the first, and from what the
// store granted between the two.
func TestNote_GoesOnFromBothOutages(t *testing.T) {
	for _, a := range rated() {
		d := newFallbackMemory(t, a, 40, 4)
		d.told(1, 40, 0)
		take(t, d, d.share(2))
		for i := range byte(5) {
			d.told(2+i, 40, 0)
		}
		d.want(2)
	}
}

// What is given back after its time gives nothing back, by the store's clock, whatever
// that says.
func TestNote_LateRefundGivesNothing(t *testing.T) {
	for _, a := range rated() {
		d := newFallbackMemory(t, a, 40, 4)
		d.behind = 3 * time.Hour
		d.told(1, 40, 0)
		old := d.permit(1)
		d.now = d.now.Add(20*time.Second + time.Millisecond)
		for i := range byte(10) {
			d.told(2+i, 40, 0)
		}
		d.MirrorRefund([]limiter.Claim{d.claim}, old, d.n)
		d.want(0)

		d = newFallbackMemory(t, a, 40, 4)
		d.behind = -3 * time.Hour
		for i := range byte(10) {
			d.told(1+i, 40, 0)
		}
		d.MirrorRefund([]limiter.Claim{d.claim}, d.permit(1), d.n)
		d.want(1)
	}
}

// Peek, and an operator's changes, know of what is noted.
func TestNote_IsKnownToAll(t *testing.T) {
	for _, a := range rated() {
		d := newFallbackMemory(t, a, 40, 4)
		for i := range byte(9) {
			d.told(1+i, 40, 0)
		}
		var said limiter.Decision
		if err := d.Peek(t.Context(), []limiter.Claim{d.share(2)}, &said); err != nil || said.Allowed || said.Outcomes[0].Remaining != 1 {
			t.Errorf("%s: two of one that is left: %+v, %v", a, said, err)
		}
		d.told(10, 40, 0)
		if err := d.Grant(t.Context(), []limiter.Claim{d.share(2)}); err != nil {
			t.Fatal(err)
		}
		d.want(2)
		d.told(11, 0, time.Second)
		if err := d.Reset(t.Context(), []limiter.Claim{d.share(1)}); err != nil {
			t.Fatal(err)
		}
		d.want(10)
	}
}

// A changed window takes what was noted under the former one as granted with the last
// of it.
func TestNote_UnderAnotherWindow(t *testing.T) {
	d := newFallbackMemory(t, limiter.TokenBucket, 40, 4)
	for i := range byte(3) {
		d.told(1+i, 40, 0)
		d.now = d.now.Add(5 * time.Second)
	}
	longer := *d.claim.Limit
	longer.Rate.Window = time.Hour
	d.claim.Limit = &longer
	d.told(9, 40, 0)
	d.now = d.now.Add(10*time.Minute - 10*time.Second)
	d.want(6)
}

// A share learns a changed limit at once, whatever the store last said of a key: what of the new limit is used is not
// granted again, and what is not is granted.
func TestShare_LearnsAChangedLimit(t *testing.T) {
	for _, a := range append(rated(), limiter.SlidingLog, limiter.Conversion) {
		for _, c := range []struct {
			from, to    int64
			here, there int64 // granted by the store, to this process and to others
			n           int
			want        int64
		}{
			{5, 1000, 5, 0, 1, 995},
			{5, 1000, 1, 4, 1, 995},
			{40, 400, 10, 30, 4, 90},
			{40, 80, 2, 38, 4, 10},
			{1000, 5, 10, 0, 1, 0},
			{1000, 5, 0, 10, 1, 0},
			{40, 20, 2, 10, 4, 2},
			{40, 40, 2, 38, 4, 0},
		} {
			t.Run(fmt.Sprint(a, c), func(t *testing.T) {
				d := newFallbackMemory(t, a, c.from, c.n)
				if a == limiter.Conversion {
					d.claim.Limit.Conversion, d.claim.Limit.Noted = 50, true
				}
				for i := range c.here {
					d.told(byte(i+1), c.from-i-1, 0)
				}
				if left := c.from - c.here - c.there; c.there > 0 {
					d.told(0, left, 10*time.Second)
				}
				d.changed(func(l *limiter.Limit) { l.Rate.Count = c.to })
				d.want(c.want)
			})
		}
	}
}

// changed has the next claims be under a changed limit.
func (f *fallbackMemory) changed(change func(l *limiter.Limit)) {
	l := *f.claim.Limit
	change(&l)
	f.claim.Limit = &l
}

// So it does in an outage, also of a key that it has counted since.
func TestShare_LearnsAChangedLimitInTheOutage(t *testing.T) {
	for _, a := range append(rated(), limiter.SlidingLog, limiter.Conversion) {
		d := newFallbackMemory(t, a, 5, 1)
		if a == limiter.Conversion {
			d.claim.Limit.Conversion, d.claim.Limit.Noted = 50, true
		}
		d.told(0, 0, 10*time.Second)
		d.want(0)
		d.changed(func(l *limiter.Limit) { l.Rate.Count = 1000 })
		d.want(995)
		d.changed(func(l *limiter.Limit) { l.Rate.Count = 100 })
		d.want(0)
	}
}

// A burst, a window, steps and numbers of values and of concurrent requests are learned as well.
func TestShare_LearnsAnyChange(t *testing.T) {
	d := newFallbackMemory(t, limiter.GCRA, 10, 1)
	d.claim.Limit.Burst = 2
	d.told(0, 0, time.Second)
	d.changed(func(l *limiter.Limit) { l.Burst = 7 })
	d.want(5)

	d = newFallbackMemory(t, limiter.TokenBucket, 1, 1)
	d.claim.Limit.Rate.Window = time.Hour
	d.told(0, 0, time.Hour)
	d.changed(func(l *limiter.Limit) { l.Rate.Window = 10 * time.Second })
	d.want(0)
	d.now = d.now.Add(10 * time.Second)
	d.want(1)

	d = newFallbackMemory(t, limiter.Distinct, 2, 1)
	d.claim.Value = limiter.KeyOf("a")
	d.told(0, 0, time.Hour)
	d.changed(func(l *limiter.Limit) { l.Rate.Count = 3 })
	var said limiter.Decision
	if err := d.Take(t.Context(), []limiter.Claim{d.share(1)}, &said); err != nil || !said.Allowed {
		t.Errorf("a third value: %+v, %v", said, err)
	}

	d = newFallbackMemory(t, limiter.Concurrent, 1, 1)
	d.told(1, 0, 0)
	d.changed(func(l *limiter.Limit) { l.Rate.Count = 3 })
	d.want(2)

	d = newFallbackMemory(t, limiter.Cooldown, 1, 1)
	d.claim.Limit.Rate.Window, d.claim.Limit.Steps = time.Hour, []time.Duration{time.Hour}
	d.told(1, 0, time.Hour)
	d.told(0, 0, time.Hour)
	d.changed(func(l *limiter.Limit) { l.Steps = []time.Duration{time.Second} })
	d.now = d.now.Add(time.Second)
	d.want(1)
}
