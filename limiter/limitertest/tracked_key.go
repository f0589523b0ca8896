package limitertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

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
