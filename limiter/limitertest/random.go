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
		t.Run(a.String(), func(t *testing.T) { s.random(t, a) })
	}
}

// random runs random schedules of one algorithm.
func (s *suite) random(t *testing.T, a limiter.Algorithm) {
	var seen windowStats
	s.runSchedules(t, func(t *rapid.T) { s.compareWithOracle(t, a, &seen) })
	seen.check(t, a)
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
func (s *suite) compareWithOracle(t *rapid.T, a limiter.Algorithm, seen *windowStats) {
	// Time passes by Advance, but Redis deletes keys by its own clock: windows are longer than any test stalls.
	length := time.Duration(rapid.Int64Range(60_000, 1_080_000).Draw(t, "length")) * time.Millisecond
	// A late refund returns more permits to gcra than are still taken, beyond its bound.
	refunds := !a.HasBurst() || rapid.Bool().Draw(t, "refunds")
	keys := make([]*trackedKey, max(1, s.ConcurrentKeys))
	for i := range keys {
		keys[i] = &trackedKey{s: s, seen: seen, refunds: refunds, limit: randomLimit(t, a, length), key: s.key(), oracle: newOracle(a)}
	}
	now := s.peek(t, keys[0].claims(1)).At.UnixMilli()
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
func (s *suite) round(t *rapid.T, now int64, keys []*trackedKey) {
	var peeks []limiter.Claim
	var wants []limiter.Outcome
	var takes [][]limiter.Claim
	var takers []*trackedKey
	for _, l := range keys {
		switch step := rapid.IntRange(0, 49).Draw(t, "step"); {
		case step == 1:
			c := l.randomClaim(t)
			peeks, wants = append(peeks, c...), append(wants, outcome(l.oracle, now, c[0]))
			continue
		case step == 2 && len(l.granted) > 0 && l.refunds:
			l.refund(t, now)
			continue
		case step == 3 && len(l.granted) > 0 && l.limit.Algorithm.HasLeases():
			l.renew(t, now)
			continue
		case step == 4 && !l.limit.Algorithm.HasBurst():
			l.limit = randomLimit(t, l.limit.Algorithm, l.limit.Rate.Window)
		}
		takes, takers = append(takes, l.randomClaim(t)), append(takers, l)
	}
	if got := s.peek(t, peeks).Outcomes; !slices.Equal(got, wants) {
		t.Fatalf("peek says %+v, want %+v", got, wants)
	}
	for i, d := range s.takeAll(t, takes) {
		takers[i].checkTake(t, now, takes[i][0], d)
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

// schedules checks that the store decides exactly as the oracles: two limits, with random
// costs, times, peeks, refunds and changes of the rate.
func schedules(t *testing.T, s *suite) {
	s.runSchedules(t, func(t *rapid.T) {
		k := s.key()
		length := time.Duration(rapid.Int64Range(10_000, 100_000).Draw(t, "length")) * time.Millisecond
		count := rapid.Int64Range(1, 128).Draw(t, "count")
		lengths := [2]time.Duration{length, 4 * length / 3 / time.Millisecond * time.Millisecond}
		counts := [2]int64{count, rapid.Int64Range(1, 128).Draw(t, "other count")}
		var now int64
		var oracles [2]logOracle
		var given []limiter.Permit
		for range s.steps() {
			pause := time.Duration(rapid.Int64Range(0, int64(length/time.Millisecond)/5).Draw(t, "pause")) * time.Millisecond
			if rapid.Bool().Draw(t, "pauses") {
				s.Advance(pause)
				now += pause.Milliseconds()
			}
			var claims []limiter.Claim
			for i := range oracles {
				cost := min(counts[i], rapid.Int64Range(1, 1+counts[i]/3).Draw(t, "cost"))
				claims = append(claims, limiter.Claim{Limit: s.limit([]string{"one", "two"}[i], counts[i], lengths[i]), Key: k, Cost: cost})
			}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				compare(t, s.peek(t, claims), expected(now, claims, &oracles))
			case 1:
				if len(given) > 0 {
					p := rapid.SampledFrom(given).Draw(t, "permit")
					s.refundFor(t, claims, &oracles, p)
				}
			case 2:
				counts[0] = rapid.Int64Range(1, 128).Draw(t, "new count")
			default:
				d := s.take(t, claims)
				want := expected(now, claims, &oracles)
				if want.Allowed {
					want = granted(now, claims, &oracles, d.Permit)
				}
				compare(t, d, want)
				if d.Allowed {
					given = append(given, d.Permit)
				}
			}
		}
	})
}

// expected returns the decision of the oracles for claims that are not taken.
func expected(now int64, claims []limiter.Claim, oracles *[2]logOracle) limiter.Decision {
	want := limiter.Decision{Allowed: true}
	for i, c := range claims {
		o := outcome(&oracles[i], now, c)
		want.Allowed = want.Allowed && o.Allowed
		want.Outcomes = append(want.Outcomes, o)
	}
	return want
}

// granted returns the decision of the oracles after they have taken claims.
func granted(now int64, claims []limiter.Claim, oracles *[2]logOracle, p limiter.Permit) limiter.Decision {
	want := limiter.Decision{Allowed: true}
	for i, c := range claims {
		oracles[i].take(c.Limit, grantRecord{at: now, n: c.Cost, permit: p})
		o := outcome(&oracles[i], now, c)
		o.Allowed = true
		want.Outcomes = append(want.Outcomes, o)
	}
	return want
}

// compare checks that two decisions are equal.
func compare(t *rapid.T, got, want limiter.Decision) {
	if got.Allowed != want.Allowed || !slices.Equal(got.Outcomes, want.Outcomes) {
		t.Fatalf("the store says %+v, the oracles %+v", got, want)
	}
}

// refundFor refunds p with the costs of its claims.
func (s *suite) refundFor(t *rapid.T, claims []limiter.Claim, oracles *[2]logOracle, p limiter.Permit) {
	back := make([]limiter.Claim, 0, len(claims))
	for i, c := range claims {
		for _, g := range oracles[i].log {
			if g.permit == p && g.n > 0 {
				c.Cost = g.n
				c.Limit = s.limit(c.Limit.Name, max(c.Limit.Rate.Count, g.n), c.Limit.Rate.Window)
				back = append(back, c)
			}
		}
		oracles[i].remove(p)
	}
	s.refund(t, back, p)
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

// A trackedKey is one key of one limit in a random schedule, with its oracle.
type trackedKey struct {
	s        *suite
	seen     *windowStats
	refunds  bool
	limit    *limiter.Limit
	key      limiter.Key
	oracle   oracle
	granted  []grantRecord // all grants
	log      log           // the grants that count for the fullest window
	maxCount int64         // the largest count of its rates
}

func (k *trackedKey) claims(cost int64) []limiter.Claim { return oneClaim(k.limit, k.key, cost) }

// randomClaim returns a random claim that could be granted.
func (k *trackedKey) randomClaim(t *rapid.T) []limiter.Claim {
	c := k.claims(1)
	if k.limit.Algorithm.HasValues() {
		c[0].Value = limiter.KeyOf(fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "value")))
	} else if most := k.limit.Capacity(); most > 1 {
		c[0].Cost = rapid.Int64Range(1, 1+(most-1)/3).Draw(t, "cost")
	}
	return c
}

// checkTake checks that d is what the oracle expects, and records what d took.
func (k *trackedKey) checkTake(t *rapid.T, now int64, c limiter.Claim, d limiter.Decision) {
	k.maxCount = max(k.maxCount, boundFactor(c.Limit))
	want := outcome(k.oracle, now, c)
	if d.Allowed != want.Allowed {
		t.Fatalf("take says %+v, want %+v", d.Outcomes[0], want)
	}
	if d.Allowed {
		got := grantRecord{at: now, n: c.Cost, value: c.Value, permit: d.Permit}
		k.oracle.take(c.Limit, got)
		k.granted = append(k.granted, got)
		k.log.take(c.Limit, got)
		k.seen.granted++
		if !k.limit.Algorithm.HasBurst() || !k.refunds {
			k.seen.worst = max(k.seen.worst, k.windowUse(now))
		}
		want = outcome(k.oracle, now, c)
		want.Allowed = true
	}
	if d.Outcomes[0] != want {
		t.Fatalf("take says %+v, want %+v", d.Outcomes[0], want)
	}
}

// maxRefunds is the number of recent cooldown permits that can certainly be refunded.
const maxRefunds = 20

// refund refunds a random earlier grant, which may have expired, under a limit of at
// least its size.
func (k *trackedKey) refund(t *rapid.T, now int64) {
	from := k.granted
	if k.limit.Algorithm.HasSteps() {
		from = from[max(0, len(from)-maxRefunds):]
	}
	g := rapid.SampledFrom(from).Draw(t, "permit")
	most := *k.limit
	if k.limit.Capacity() < g.n {
		most.Rate.Count = g.n
	}
	c := oneClaim(&most, k.key, g.n)
	c[0].Value = g.value
	k.s.refund(t, c, g.permit)
	if k.oracle.refund(now, k.limit, g.permit) {
		k.log.remove(g.permit)
	}
}

// renew renews a random earlier grant.
func (k *trackedKey) renew(t *rapid.T, now int64) {
	g := rapid.SampledFrom(k.granted).Draw(t, "permit")
	out := k.oracle.(*logOracle).renew(now, k.limit, g.permit)
	most := *k.limit
	most.Rate.Count = max(most.Rate.Count, g.n)
	err := k.s.Store.(limiter.AdminStore).Renew(k.s.t.Context(), oneClaim(&most, k.key, g.n), g.permit)
	if out && err != nil || !out && !errors.Is(err, limiter.ErrNotHeld) {
		t.Fatalf("renew says %v, want that it is still out: %v", err, out)
	}
	if i := slices.IndexFunc(k.log, func(t grantRecord) bool { return t.permit == g.permit }); out && i >= 0 {
		k.log[i].at = now
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
func (k *trackedKey) windowUse(now int64) float64 {
	after := now - k.limit.Rate.Window.Milliseconds()
	switch a := k.limit.Algorithm; {
	case a.HasSteps():
		after = now - k.limit.Steps[0].Milliseconds()
	case a.HasValues():
		return float64(distinctValues(k.log, after)) / float64(k.maxCount)
	}
	return float64(k.log.sum(func(at int64) bool { return at > after })) / float64(k.maxCount)
}

// windowStats are the statistics of all schedules of one algorithm.
type windowStats struct {
	calls, granted int
	worst          float64
}

// check checks that the fullest of all windows is within the algorithm's bound, and is
// full.
func (w *windowStats) check(t *testing.T, a limiter.Algorithm) {
	bound, of := 1.0, "the rate"
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
	if bound == 1 && !a.HasBurst() && w.worst < 1 {
		t.Errorf("the fullest window holds %v x %s, want it full", w.worst, of)
	}
}
