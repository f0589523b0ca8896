package limitertest

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

func (s *suite) steps() int {
	if s.Steps == 0 {
		return 600
	}
	return s.Steps
}

// schedules checks that the store decides exactly as the models: two limits, with random
// costs, times, peeks, refunds and changes of the rate.
func schedules(t *testing.T, s *suite) {
	s.runSchedules(t, func(t *rapid.T) {
		k := s.key()
		length := time.Duration(rapid.Int64Range(10_000, 100_000).Draw(t, "length")) * time.Millisecond
		count := rapid.Int64Range(1, 128).Draw(t, "count")
		lengths := [2]time.Duration{length, 4 * length / 3 / time.Millisecond * time.Millisecond}
		counts := [2]int64{count, rapid.Int64Range(1, 128).Draw(t, "other count")}
		var models [2]model
		var given []limiter.Permit
		for range s.steps() {
			pause := time.Duration(rapid.Int64Range(0, int64(length/time.Millisecond)/5).Draw(t, "pause")) * time.Millisecond
			if rapid.Bool().Draw(t, "pauses") {
				s.Advance(pause)
				models[0].now += pause
				models[1].now += pause
			}
			var claims []limiter.Claim
			for i := range models {
				cost := min(counts[i], rapid.Int64Range(1, 1+counts[i]/3).Draw(t, "cost"))
				claims = append(claims, limiter.Claim{Limit: limit([]string{"one", "two"}[i], counts[i], lengths[i]), Key: k, Cost: cost})
			}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				compare(t, s.peek(t, claims), expected(claims, &models))
			case 1:
				if len(given) > 0 {
					p := rapid.SampledFrom(given).Draw(t, "permit")
					s.refundFor(t, claims, &models, p)
				}
			case 2:
				counts[0] = rapid.Int64Range(1, 128).Draw(t, "new count")
			default:
				d := s.take(t, claims)
				want := expected(claims, &models)
				if want.Allowed {
					want = granted(claims, &models, d.Permit)
				}
				compare(t, d, want)
				if d.Allowed {
					given = append(given, d.Permit)
				}
			}
		}
	})
}

// expected returns the decision of the models for claims that are not taken.
func expected(claims []limiter.Claim, models *[2]model) limiter.Decision {
	want := limiter.Decision{Allowed: true}
	for i, c := range claims {
		o := models[i].outcome(c.Limit.Rate, c.Cost)
		want.Allowed = want.Allowed && o.Allowed
		want.Outcomes = append(want.Outcomes, o)
	}
	return want
}

// granted returns the decision of the models after they have taken claims.
func granted(claims []limiter.Claim, models *[2]model, p limiter.Permit) limiter.Decision {
	want := limiter.Decision{Allowed: true}
	for i, c := range claims {
		models[i].take(c.Cost, p)
		o := models[i].outcome(c.Limit.Rate, c.Cost)
		o.Allowed = true
		want.Outcomes = append(want.Outcomes, o)
	}
	return want
}

// compare checks that two decisions are equal.
func compare(t *rapid.T, got, want limiter.Decision) {
	if got.Allowed != want.Allowed || !slices.Equal(got.Outcomes, want.Outcomes) {
		t.Fatalf("the store says %+v, the models %+v", got, want)
	}
}

// refundFor refunds p with the costs of its claims.
func (s *suite) refundFor(t *rapid.T, claims []limiter.Claim, models *[2]model, p limiter.Permit) {
	back := make([]limiter.Claim, 0, len(claims))
	for i, c := range claims {
		for _, g := range models[i].log {
			if g.permit == p && g.n > 0 {
				c.Cost = g.n
				c.Limit = limit(c.Limit.Name, max(c.Limit.Rate.Count, g.n), c.Limit.Rate.Window)
				back = append(back, c)
			}
		}
		models[i].refund(p)
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
		l := limit("merged", rate.Count, rate.Window)
		most := max(1, rate.Count/60)
		late := rate.Window/64 + time.Millisecond
		var m model
		for range 4 * s.steps() {
			pause := time.Duration(rapid.Int64Range(0, int64(rate.Window/time.Millisecond)/150).Draw(t, "pause")) * time.Millisecond
			s.Advance(pause)
			m.now += pause
			c := oneClaim(l, k, rapid.Int64Range(1, most).Draw(t, "cost"))
			d := s.take(t, c)
			if d.Allowed {
				m.take(c[0].Cost, d.Permit)
			}
			left, least := rate.Count-m.used(rate.Window), rate.Count-m.used(rate.Window+late)
			if got := d.Outcomes[0].Remaining; got > left || got < least {
				t.Fatalf("%d left, want %d to %d", got, least, left)
			}
		}
		if worst := m.fullestWindow(rate.Window); worst > rate.Count {
			t.Fatalf("%d permits in one window of %s", worst, rate)
		}
	})
}
