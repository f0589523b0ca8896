package limitertest

import (
	"errors"
	"fmt"
	"slices"

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

func (l *trackedKey) claims(cost int64) []limiter.Claim { return oneClaim(l.limit, l.key, cost) }

// randomClaim returns a random claim that could be granted.
func (l *trackedKey) randomClaim(t *rapid.T) []limiter.Claim {
	c := l.claims(1)
	if l.limit.Algorithm.HasValues() {
		c[0].Value = limiter.KeyOf(fmt.Sprint(rapid.IntRange(0, 8).Draw(t, "value")))
	} else if most := l.limit.Capacity(); most > 1 {
		c[0].Cost = rapid.Int64Range(1, 1+(most-1)/3).Draw(t, "cost")
	}
	return c
}

// checkTake checks that d is what the oracle expects, and records what d took.
func (l *trackedKey) checkTake(t *rapid.T, now int64, c limiter.Claim, d limiter.Decision) {
	l.maxCount = max(l.maxCount, boundFactor(c.Limit))
	want := outcome(l.oracle, now, c)
	if d.Allowed != want.Allowed {
		t.Fatalf("take says %+v, want %+v", d.Outcomes[0], want)
	}
	if d.Allowed {
		got := grantRecord{at: now, n: c.Cost, value: c.Value, permit: d.Permit}
		l.oracle.take(c.Limit, got)
		l.granted = append(l.granted, got)
		l.log.add(c.Limit, got)
		l.seen.granted++
		if !l.limit.Algorithm.HasBurst() || !l.refunds {
			l.seen.worst = max(l.seen.worst, l.windowUse(now))
		}
		want = outcome(l.oracle, now, c)
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
func (l *trackedKey) refund(t *rapid.T, now int64) {
	from := l.granted
	if l.limit.Algorithm.HasSteps() {
		from = from[max(0, len(from)-maxRefunds):]
	}
	g := rapid.SampledFrom(from).Draw(t, "permit")
	most := *l.limit
	if l.limit.Capacity() < g.n {
		most.Rate.Count = g.n
	}
	c := oneClaim(&most, l.key, g.n)
	c[0].Value = g.value
	l.s.refund(t, c, g.permit)
	if l.oracle.refund(now, l.limit, g.permit) {
		l.log.remove(g.permit)
	}
}

// renew renews a random earlier grant.
func (l *trackedKey) renew(t *rapid.T, now int64) {
	g := rapid.SampledFrom(l.granted).Draw(t, "permit")
	out := l.oracle.(*logOracle).renew(now, l.limit, g.permit)
	most := *l.limit
	most.Rate.Count = max(most.Rate.Count, g.n)
	err := l.s.Store.(limiter.AdminStore).Renew(l.s.t.Context(), oneClaim(&most, l.key, g.n), g.permit)
	if out && err != nil || !out && !errors.Is(err, limiter.ErrNotHeld) {
		t.Fatalf("renew says %v, want that it is still out: %v", err, out)
	}
	if i := slices.IndexFunc(l.log, func(t grantRecord) bool { return t.permit == g.permit }); out && i >= 0 {
		l.log[i].at = now
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
func (l *trackedKey) windowUse(now int64) float64 {
	after := now - l.limit.Rate.Window.Milliseconds()
	switch a := l.limit.Algorithm; {
	case a.HasSteps():
		after = now - l.limit.Steps[0].Milliseconds()
	case a.HasValues():
		return float64(distinctValues(l.log, after)) / float64(l.maxCount)
	}
	return float64(l.log.sum(func(at int64) bool { return at > after })) / float64(l.maxCount)
}
