package limitertest

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// pauses is a cooldown that begins again after 200 s.
func pauses(steps ...time.Duration) *limiter.Limit {
	l := limit("pauses", 1, 200*time.Second)
	l.Algorithm, l.Steps = limiter.Cooldown, steps
	return l
}

// cooldown: each pause is longer than the one before, up to the last step.
func cooldown(t *testing.T, s *suite) {
	l := pauses(10*time.Second, 20*time.Second, 90*time.Second)
	c := oneClaim(l, s.key(), 1)
	var permits []limiter.Permit
	for _, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 90 * time.Second, 90 * time.Second} {
		permits = append(permits, s.allowed(c, 1).Permit)
		s.denied(c, pause)
		s.Advance(pause - time.Millisecond)
		s.denied(c, time.Millisecond)
		s.Advance(time.Millisecond)
		s.left(c, 1)
	}
	s.Advance(110*time.Second - time.Millisecond) // a millisecond before it begins again
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
	c = oneClaim(l, s.key(), 1)
	first := s.allowed(c, 1)
	s.Advance(15 * time.Second)
	second := s.allowed(c, 1)
	s.refund(t, c, first.Permit)
	s.denied(c, 10*time.Second)
	s.refund(t, c, second.Permit)
	s.left(c, 1)

	admin := s.Store.(limiter.AdminStore)
	s.allowed(c, 1)
	s.must(admin.Reset(t.Context(), c))
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	s.must(admin.Grant(t.Context(), c))
	s.allowed(c, 1)
	s.denied(c, 10*time.Second)
	s.must(admin.Ban(t.Context(), c, time.Hour))
	s.banned(c, time.Hour)

	// Many permits leave few entries, and the level stays.
	c = oneClaim(pauses(time.Millisecond, 2*time.Millisecond), s.key(), 1)
	for range 3 * limiter.MaxSteps {
		s.allowed(c, 1)
		s.Advance(2 * time.Millisecond)
	}
	s.allowed(c, 1)
	s.denied(c, 2*time.Millisecond)

	badPauses(t, s)
}

// badPauses: steps grow, are whole milliseconds, and no longer than the window.
func badPauses(t *testing.T, s *suite) {
	two := pauses(time.Second)
	two.Rate.Count = 2
	stray := limit("stray", 1, time.Second)
	stray.Steps = []time.Duration{time.Second}
	for name, bad := range map[string]*limiter.Limit{
		"none": pauses(), "long": pauses(201 * time.Second), "short": pauses(time.Microsecond), "falling": pauses(2*time.Second, time.Second),
		"two": two, "stray": stray, "many": pauses(make([]time.Duration, limiter.MaxSteps+1)...),
	} {
		var d limiter.Decision
		if err := s.Store.Take(t.Context(), oneClaim(bad, s.key(), 1), &d); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("bad %s: %v, want ErrLimit", name, err)
		}
	}
}

// together: all algorithms of one key are taken in one step, or none.
func together(t *testing.T, s *suite) {
	k := s.key()
	claims := append(with(values(3), k, "a"), oneClaim(pauses(10*time.Second), k, 1)...)
	claims = append(claims, oneClaim(limit("bucket", 5, 100*time.Second), k, 1)...)
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
