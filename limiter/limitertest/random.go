package limitertest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// printSeed logs the seed of the random schedules: a random one, unless the command line
// sets it.
func printSeed(t *testing.T) {
	f := flag.Lookup("rapid.seed")
	if f.Value.String() == "0" {
		if err := flag.Set("rapid.seed", strconv.FormatUint(rand.Uint64(), 10)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("random schedules: -rapid.seed=%s", f.Value)
}

// randomSchedules checks that each algorithm decides exactly as its oracle, and that no
// window holds more than the algorithm allows.
func randomSchedules(t *testing.T, s *suite) {
	for a := range limiter.NumAlgorithms {
		if a.HasConversion() {
			continue // conversionRandom
		}
		t.Run(a.String(), func(t *testing.T) { s.random(t, a, 1) })
	}
}

// schedules is randomSchedules with two limits in each decision.
func schedules(t *testing.T, s *suite) { s.random(t, s.algorithm, 2) }

// random runs random schedules of one algorithm, with so many limits on each key.
func (s *suite) random(t *testing.T, a limiter.Algorithm, limits int) {
	seen := windowStats{algorithm: a, limits: limits}
	s.runSchedules(t, func(t *rapid.T) { s.compareWithOracle(t, &seen) })
	seen.check(t)
}

// runSchedules runs as many schedules as the subject allows.
func (s *suite) runSchedules(t *testing.T, schedule func(t *rapid.T)) {
	ran, failed := 0, false
	rapid.Check(t, func(t *rapid.T) {
		ran++
		if s.Schedules > 0 && ran > s.Schedules && !failed {
			return
		}
		done := false
		defer func() { failed = failed || !done }() // rapid repeats a failed schedule to shrink it
		schedule(t)
		done = true
	})
}

func (s *suite) calls() int {
	if s.Calls == 0 {
		return 60_000
	}
	return s.Calls
}

// compareWithOracle runs one random schedule of one algorithm.
func (s *suite) compareWithOracle(t *rapid.T, seen *windowStats) {
	a := seen.algorithm
	// Time passes by Advance, but Redis deletes keys by its own clock: windows are longer than any test stalls.
	length := time.Duration(rapid.Int64Range(60_000, 1_080_000).Draw(t, "length")) * time.Millisecond
	// A late refund returns more permits to gcra than are still taken, beyond its bound.
	refunds := !a.HasBurst() || rapid.Bool().Draw(t, "refunds")
	keys := make([]trackedKey, max(1, s.ConcurrentKeys))
	for i := range keys {
		keys[i] = trackedKey{s: s, refunds: refunds}
		k := s.key()
		for n := range seen.limits {
			l := randomLimit(t, a, length+time.Duration(n)*length/3/time.Millisecond*time.Millisecond)
			l.Name = fmt.Sprint("r", n)
			keys[i].counts = append(keys[i].counts, &trackedCount{seen: seen, limit: l, key: k, oracle: newOracle(a)})
		}
	}
	now := s.peek(t, keys[0].randomClaims(t)).At.UnixMilli()
	for calls := 0; calls < s.calls()/cmp.Or(s.Schedules, 100); calls += len(keys) {
		if rapid.Bool().Draw(t, "pauses") {
			pause := rapid.Int64Range(0, length.Milliseconds()/4).Draw(t, "pause")
			s.Advance(time.Duration(pause) * time.Millisecond)
			now += pause
		}
		s.round(t, now, keys)
		seen.calls += len(keys)
	}
}

// randomLimit returns a random limit with this window.
func randomLimit(t *rapid.T, a limiter.Algorithm, length time.Duration) *limiter.Limit {
	l := limit("r", 1, length)
	l.Algorithm = a
	switch {
	case a.HasValues():
		l.Rate.Count = rapid.Int64Range(1, 6).Draw(t, "count")
	case a.HasSteps():
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			l.Steps = append(l.Steps, time.Duration(rapid.Int64Range(1, length.Milliseconds()).Draw(t, "step"))*time.Millisecond)
		}
		slices.Sort(l.Steps)
	default:
		l.Rate.Count = rapid.Int64Range(1, 120).Draw(t, "count")
	}
	if a.HasBurst() && rapid.Bool().Draw(t, "has burst") {
		l.Burst = rapid.Int64Range(1, 150).Draw(t, "burst")
	}
	return l
}

// round makes one call for each key: the takes concurrently, the peeks in one call.
func (s *suite) round(t *rapid.T, now int64, keys []trackedKey) {
	var peeks []limiter.Claim
	var wants []limiter.Outcome
	var takes [][]limiter.Claim
	var takers []*trackedKey
	for i := range keys {
		k := &keys[i]
		a, hasGranted := k.counts[0].limit.Algorithm, len(k.counts[0].granted) > 0
		switch step := rapid.IntRange(0, 49).Draw(t, "step"); {
		case step == 1:
			for i, c := range k.randomClaims(t) {
				peeks, wants = append(peeks, c), append(wants, outcome(k.counts[i].oracle, now, c))
			}
			continue
		case step == 2 && hasGranted && k.refunds:
			k.refund(t, now)
			continue
		case step == 3 && hasGranted && a.HasLeases():
			k.renew(t, now)
			continue
		case step == 4 && !a.HasBurst():
			c := rapid.SampledFrom(k.counts).Draw(t, "count of")
			name := c.limit.Name
			c.limit = randomLimit(t, a, c.limit.Rate.Window)
			c.limit.Name = name
		}
		takes, takers = append(takes, k.randomClaims(t)), append(takers, k)
	}
	if got := s.peek(t, peeks).Outcomes; !slices.Equal(got, wants) {
		t.Fatalf("peek says %+v, want %+v", got, wants)
	}
	for i, d := range s.takeAll(t, takes) {
		takers[i].checkTake(t, now, takes[i], d)
	}
}

// takeAll takes all claims concurrently.
func (s *suite) takeAll(t reporter, all [][]limiter.Claim) []limiter.Decision {
	ds, errs := make([]limiter.Decision, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, claims := range all {
		take := func() { errs[i] = s.Store.Take(s.t.Context(), claims, &ds[i]) }
		if len(all) == 1 {
			take()
		} else {
			wg.Go(take)
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("take: %v", err)
	}
	for i, claims := range all {
		s.checkDecision(t, claims, ds[i])
	}
	if len(all) > 0 { // only one of them, because it may take two more calls
		s.checkConserved(t, all[0], ds[0])
	}
	return ds
}

func (s *suite) steps() int {
	if s.Steps == 0 {
		return 600
	}
	return s.Steps
}

// schedulesMerged checks, at rates where a store merges entries, that no window holds
// more than the rate and that permits expire at most 1/64 of the window late.
func schedulesMerged(t *testing.T, s *suite) {
	s.runSchedules(t, func(t *rapid.T) {
		k := s.key()
		rate := limiter.Rate{
			Count:  rapid.Int64Range(129, 3000).Draw(t, "count"),
			Window: time.Duration(rapid.Int64Range(10_000, 100_000).Draw(t, "length")) * time.Millisecond,
		}
		l := s.limit("merged", rate.Count, rate.Window)
		most := max(1, rate.Count/60)
		late := rate.Window/64 + time.Millisecond
		var now int64
		var taken log
		for range 4 * s.steps() {
			pause := time.Duration(rapid.Int64Range(0, int64(rate.Window/time.Millisecond)/150).Draw(t, "pause")) * time.Millisecond
			s.Advance(pause)
			now += pause.Milliseconds()
			c := oneClaim(l, k, rapid.Int64Range(1, most).Draw(t, "cost"))
			d := s.take(t, c)
			if d.Allowed {
				taken = append(taken, grantRecord{at: now, n: c[0].Cost})
			}
			left, least := rate.Count-taken.used(now, rate.Window), rate.Count-taken.used(now, rate.Window+late)
			if got := d.Outcomes[0].Remaining; got > left || got < least {
				t.Fatalf("%d left, want %d to %d", got, least, left)
			}
		}
		if worst := taken.fullestWindow(rate.Window); worst > rate.Count {
			t.Fatalf("%d permits in one window of %s", worst, rate)
		}
	})
}

// A trackedKey is one key in a random schedule, which counts under one or more limits.
type trackedKey struct {
	s       *suite
	refunds bool
	counts  []*trackedCount // all have the same grants
}

// A trackedCount is the count of one key under one limit, with its oracle.
type trackedCount struct {
	seen     *windowStats
	limit    *limiter.Limit
	key      limiter.Key
	oracle   oracle
	granted  []grantRecord // all grants
	log      log           // the grants that count for the fullest window
	maxCount int64         // the largest count of its rates
}

// randomClaims returns one random claim for each limit of k that could be granted.
func (k *trackedKey) randomClaims(t *rapid.T) (all []limiter.Claim) {
	for _, of := range k.counts {
		c := oneClaim(of.limit, of.key, 1)
		if of.limit.Algorithm.HasValues() {
			c[0].Value = limiter.KeyOf(fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "value")))
		} else if most := of.limit.Capacity(); most > 1 {
			c[0].Cost = rapid.Int64Range(1, 1+(most-1)/3).Draw(t, "cost")
		}
		all = append(all, c...)
	}
	return all
}

// checkTake checks that d is what the oracles expect for claims, and records what d took.
func (k *trackedKey) checkTake(t *rapid.T, now int64, claims []limiter.Claim, d limiter.Decision) {
	for i, c := range claims {
		of := k.counts[i]
		of.maxCount = max(of.maxCount, boundFactor(c.Limit))
		want := outcome(of.oracle, now, c)
		if d.Allowed && !want.Allowed {
			t.Fatalf("take says %+v, want %+v", d.Outcomes[i], want)
		}
		if d.Allowed {
			of.take(c.Limit, grantRecord{at: now, n: c.Cost, value: c.Value, permit: d.Permit})
			if !c.Limit.Algorithm.HasBurst() || !k.refunds {
				of.seen.worst = max(of.seen.worst, of.windowUse(now))
			}
			want = outcome(of.oracle, now, c)
			want.Allowed = true
		}
		if d.Outcomes[i] != want {
			t.Fatalf("take says %+v, want %+v", d.Outcomes[i], want)
		}
	}
}

// take records a grant.
func (c *trackedCount) take(of *limiter.Limit, g grantRecord) {
	c.oracle.take(of, g)
	c.granted = append(c.granted, g)
	c.log.take(of, g)
	c.seen.granted++
}

// maxRefunds is the number of recent cooldown permits that can certainly be refunded.
const maxRefunds = 20

// claimOf returns the claim of the n-th grant, under a limit of at least its size.
func (c *trackedCount) claimOf(n int) (limiter.Claim, grantRecord) {
	g, most := c.granted[n], *c.limit
	if most.Capacity() < g.n {
		most.Rate.Count = g.n
	}
	return limiter.Claim{Limit: &most, Key: c.key, Cost: g.n, Value: g.value}, g
}

// refund refunds a random earlier grant, which may have expired.
func (k *trackedKey) refund(t *rapid.T, now int64) {
	oldest, latest := 0, len(k.counts[0].granted)-1
	if k.counts[0].limit.Algorithm.HasSteps() {
		oldest = max(0, latest+1-maxRefunds)
	}
	n := rapid.IntRange(oldest, latest).Draw(t, "permit")
	var claims []limiter.Claim
	for _, of := range k.counts {
		c, g := of.claimOf(n)
		claims = append(claims, c)
		if of.oracle.refund(now, of.limit, g.permit) {
			of.log.remove(g.permit)
		}
	}
	k.s.refund(t, claims, k.counts[0].granted[n].permit)
}

// renew renews a random earlier grant of its one limit.
func (k *trackedKey) renew(t *rapid.T, now int64) {
	of := k.counts[0]
	c, g := of.claimOf(rapid.IntRange(0, len(of.granted)-1).Draw(t, "permit"))
	out := of.oracle.(*logOracle).renew(now, of.limit, g.permit)
	err := k.s.admin().Renew(k.s.t.Context(), []limiter.Claim{c}, g.permit)
	if out && err != nil || !out && !errors.Is(err, limiter.ErrNotHeld) {
		t.Fatalf("renew says %v, want that it is still out: %v", err, out)
	}
	if i := slices.IndexFunc(of.log, func(t grantRecord) bool { return t.permit == g.permit }); out && i >= 0 {
		of.log[i].at = now
	}
}

// boundFactor returns the number of permits that the bound of the algorithm is a multiple
// of.
func boundFactor(l *limiter.Limit) int64 {
	if l.Algorithm.HasBurst() {
		return l.Rate.Count + l.Capacity()
	}
	return l.Rate.Count
}

// windowUse returns the number of permits in the window that ends now, as a multiple of
// maxCount. For a cooldown the window is its first pause.
func (c *trackedCount) windowUse(now int64) float64 {
	after := now - c.limit.Rate.Window.Milliseconds()
	switch a := c.limit.Algorithm; {
	case a.HasSteps():
		after = now - c.limit.Steps[0].Milliseconds()
	case a.HasValues():
		return float64(distinctValues(c.log, after)) / float64(c.maxCount)
	}
	return float64(c.log.sum(func(at int64) bool { return at > after })) / float64(c.maxCount)
}

// windowStats are the statistics of all schedules of one algorithm.
type windowStats struct {
	algorithm      limiter.Algorithm
	limits         int // on each key
	calls, granted int
	worst          float64
}

// check checks that the fullest of all windows is within the algorithm's bound, and is
// full.
func (w *windowStats) check(t *testing.T) {
	a, bound, of := w.algorithm, 1.0, "the rate"
	switch {
	case a.MayDouble():
		bound = 2
	case a.HasBurst():
		of = "rate + burst"
	}
	t.Logf("%s: %d calls, %d granted; the fullest window holds %.2f x %s", a, w.calls, w.granted, w.worst, of)
	if w.worst > bound {
		t.Errorf("the fullest window holds %v x %s, want at most %v", w.worst, of, bound)
	}
	if bound == 1 && !a.HasBurst() && w.limits == 1 && w.worst < 1 { // another limit may refuse first
		t.Errorf("the fullest window holds %v x %s, want it full", w.worst, of)
	}
}
