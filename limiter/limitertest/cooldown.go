package limitertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// pauses is a cooldown that begins anew after 200 s.
func pauses(steps ...time.Duration) *limiter.Limit {
	l := limit("pauses", 1, 200*time.Second)
	l.Algorithm, l.Steps = limiter.Cooldown, steps
	return l
}

// cooldown: each pause is longer than the one before, up to the last step.
func cooldown(t *testing.T, s *scene) {
	l := pauses(10*time.Second, 20*time.Second, 90*time.Second)
	c := one(l, s.key(), 1)
	var permits []limiter.Permit
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 90 * time.Second, 90 * time.Second} {
		permits = append(permits, s.allowed(c, 1).Permit)
		s.denied(c, pause)
		s.Advance(pause - time.Millisecond)
		s.denied(c, time.Millisecond)
		s.Advance(time.Millisecond)
		s.left(c, 1)
	}
	s.Advance(110*time.Second - time.Millisecond) // a millisecond before it begins anew
	last := s.allowed(c, 1)
	s.denied(c, 90*time.Second)
	s.refund(t, c, last.Permit)
	s.refund(t, c, last.Permit)
	s.Advance(time.Millisecond)
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	for _, p := range permits {
		s.refund(t, c, p)
	}
	s.denied(c, 10*time.Second)

	// One that is given back is as if it had not been.
	c = one(l, s.key(), 1)
	first := s.allowed(c, 1)
	s.Advance(15 * time.Second)
	second := s.allowed(c, 1)
	s.refund(t, c, first.Permit)
	s.denied(c, 10*time.Second)
	s.refund(t, c, second.Permit)
	s.left(c, 1)

	keeper := s.Store.(limiter.Keeper)
	s.allowed(c, 1)
	if err := keeper.Reset(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	if err := keeper.Grant(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	if err := keeper.Ban(t.Context(), c, time.Hour); err != nil {
		t.Fatal(err)
	}
	s.banned(c, time.Hour)

	// Many permits leave few entries, and the level stays.
	c = one(pauses(time.Millisecond, 2*time.Millisecond), s.key(), 1)
	for range 3 * limiter.MaxSteps {
		s.allowed(c, 1)
		s.Advance(2 * time.Millisecond)
	}
	s.allowed(c, 1)
	s.denied(c, 2*time.Millisecond)

	two := pauses(time.Second)
	two.Rate.Count = 2
	stray := limit("stray", 1, time.Second)
	stray.Steps = []time.Duration{time.Second}
	for name, bad := range map[string]*limiter.Limit{
		"none": pauses(), "long": pauses(201 * time.Second), "short": pauses(time.Microsecond), "falling": pauses(2*time.Second, time.Second),
		"two": two, "stray": stray, "many": pauses(make([]time.Duration, limiter.MaxSteps+1)...),
	} {
		var d limiter.Decision
		if err := s.Store.Take(t.Context(), one(bad, s.key(), 1), &d); !errors.Is(err, limiter.ErrLimit) {
			t.Errorf("bad %s: %v, want ErrLimit", name, err)
		}
	}
}

// cooldownSchedules: in random schedules the store says what a plain list says.
func cooldownSchedules(t *testing.T, s *scene) {
	rapid.Check(t, func(t *rapid.T) {
		var steps []time.Duration
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			steps = append(steps, time.Duration(rapid.Int64Range(1, 100_000).Draw(t, "step"))*time.Millisecond)
		}
		slices.Sort(steps)
		l, k := pauses(steps...), s.key()
		now := s.peek(t, one(l, k, 1)).At.UnixMilli()
		var log []used
		for range min(s.steps(), 30) { // fewer than what is merged
			pause := rapid.Int64Range(0, 120_000).Draw(t, "pause")
			s.Advance(time.Duration(pause) * time.Millisecond)
			now += pause
			if n := len(log); n > 0 && log[n-1].at <= now-200_000 {
				log = nil
			}
			if len(log) > 0 && rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				i := rapid.IntRange(0, len(log)-1).Draw(t, "which")
				s.refund(t, one(l, k, 1), log[i].permit)
				log = slices.Delete(log, i, i+1)
				continue
			}
			var want time.Duration
			if n := len(log); n > 0 {
				want = max(0, time.Duration(log[n-1].at-now)*time.Millisecond+steps[min(n, len(steps))-1])
			}
			d := s.take(t, one(l, k, 1))
			if d.Allowed != (want == 0) || d.Wait != want {
				t.Fatalf("after %d permits: %+v, want a wait of %v", len(log), d, want)
			}
			if d.Allowed {
				log = append(log, used{at: now, permit: d.Permit})
			}
		}
	})
}

// together: all algorithms of one key are taken in one step, or none.
func together(t *testing.T, s *scene) {
	k := s.key()
	claims := append(with(values(3), k, "a"), one(pauses(10*time.Second), k, 1)...)
	claims = append(claims, one(limit("bucket", 5, 100*time.Second), k, 1)...)
	first := s.allowed(claims, 1)
	claims[0].Value = limiter.KeyOf("b")
	d := s.denied(claims, 10*time.Second)
	if !d.Outcomes[0].Allowed || d.Outcomes[0].Remaining != 2 || !d.Outcomes[2].Allowed || d.Outcomes[2].Remaining != 4 {
		t.Errorf("%+v; want the other two to have taken nothing", d.Outcomes)
	}
	claims[0].Value = limiter.KeyOf("a")
	s.refund(t, claims, first.Permit)
	for i, want := range []int64{3, 1, 5} {
		s.left(claims[i:i+1], want)
	}
}
