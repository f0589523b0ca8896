package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// status inspects one claim.
func (s *suite) status(c []limiter.Claim) limiter.KeyStatus {
	s.t.Helper()
	in, err := s.admin().Inspect(s.t.Context(), c)
	if err != nil || len(in.Statuses) != len(c) || in.At.IsZero() {
		s.t.Fatalf("inspect: %+v, %v", in, err)
	}
	return in.Statuses[0]
}

// wantStatus checks the number of used and remaining permits, and returns the status.
func (s *suite) wantStatus(c []limiter.Claim, used, left int64) limiter.KeyStatus {
	s.t.Helper()
	got := s.status(c)
	if got.Used != used || got.Remaining != left || got.Capacity != c[0].Limit.Capacity() || got.Allowed != got.Capacity || got.Confirmed != 0 || got.Overflow || got.Unreadable {
		s.t.Fatalf("%s: %+v, want %d used and %d left", c[0].Limit.Algorithm, got, used, left)
	}
	if (got.NextIn == 0) != (left == got.Capacity) && !c[0].Limit.Algorithm.HasSteps() || (got.FullIn == 0) != (used == 0) || got.FullIn < got.NextIn {
		s.t.Fatalf("%s: %+v: next and full do not go with what is used", c[0].Limit.Algorithm, got)
	}
	return got
}

// inspect checks that the times of Inspect are exact, that it takes nothing, and that it
// reports permits during a ban.
func inspect(t *testing.T, s *suite) {
	for _, a := range rated() {
		for _, count := range s.sizes(1, 5, 40) {
			l := LimitOf(a, fmt.Sprintf("inspect-%s-%d", a, count), limiter.Rate{Count: count, Window: 100 * time.Second})
			checkForecast(t, s, oneClaim(l, s.key(), 1))
		}
	}
	inspectOthers(t, s)
	inspectTogether(t, s)
	if in, err := s.admin().Inspect(t.Context(), nil); err != nil || len(in.Statuses) != 0 {
		t.Errorf("nothing: %+v, %v", in, err)
	}
}

// checkForecast takes half of the permits of c, lets the predicted time pass, and checks
// that they are available then.
func checkForecast(t *testing.T, s *suite, c []limiter.Claim) {
	t.Helper()
	most := c[0].Limit.Capacity()
	s.Advance(time.Duration(100_000-s.peek(t, c).At.UnixMilli()%100_000) * time.Millisecond) // the border of a window
	s.wantStatus(c, 0, most)
	half := (most + 1) / 2
	s.allowed(c, int(half))
	s.Advance(time.Second)
	before := s.status(c)
	s.must(s.admin().Ban(t.Context(), c, time.Minute))
	s.Advance(time.Second)
	got := s.status(c)
	if got.BannedFor != 59*time.Second || got.Remaining < before.Remaining || got.Remaining > before.Remaining+1 {
		t.Fatalf("%s: %+v banned, %+v before; want a ban of 59s and what is left beside it", c[0].Limit.Algorithm, got, before)
	}
	s.must(s.admin().Ban(t.Context(), c, 0))
	for range 3 {
		now := s.status(c)
		if now.BannedFor != 0 {
			t.Fatalf("%+v after the ban was lifted", now)
		}
		if now.Remaining == most {
			break
		}
		s.wantStatus(c, most-now.Remaining, now.Remaining)
		s.Advance(now.NextIn - time.Millisecond)
		s.wantStatus(c, most-now.Remaining, now.Remaining)
		s.Advance(time.Millisecond)
		if next := s.status(c); next.Remaining <= now.Remaining {
			t.Fatalf("%s: %+v after %v, %+v before", c[0].Limit.Algorithm, next, now.NextIn, now)
		}
	}
	if rest := s.status(c); rest.FullIn > 0 {
		s.Advance(rest.FullIn - time.Millisecond)
		if soon := s.status(c); soon.Remaining == most || soon.FullIn != time.Millisecond {
			t.Fatalf("%s: %+v a millisecond before it is as new", c[0].Limit.Algorithm, soon)
		}
		s.Advance(time.Millisecond)
	}
	s.wantStatus(c, 0, most)
}

// inspectOthers inspects limits with other counts: values, and pauses that grow.
func inspectOthers(t *testing.T, s *suite) {
	k := s.key()
	fan := values(3)
	s.allowed(with(fan, k, "a"), 1)
	s.Advance(10 * time.Second)
	s.allowed(with(fan, k, "b"), 1)
	s.allowed(with(fan, k, "b"), 1)
	if got := s.wantStatus(oneClaim(fan, k, 1), 2, 1); got.NextIn != 90*time.Second || got.FullIn != 100*time.Second {
		t.Errorf("%+v; want the first value back in 90s and both in 100s", got)
	}
	pause := pauses(10*time.Second, 20*time.Second, 90*time.Second)
	c := oneClaim(pause, s.key(), 1)
	s.wantStatus(c, 0, 1)
	s.allowed(c, 1)
	s.Advance(10 * time.Second)
	s.allowed(c, 1)
	s.Advance(5 * time.Second)
	if got := s.wantStatus(c, 2, 0); got.NextIn != 15*time.Second || got.FullIn != pause.Rate.Window-5*time.Second {
		t.Errorf("%+v; want the second pause to end in 15s", got)
	}
	s.Advance(15 * time.Second)
	if got := s.wantStatus(c, 2, 1); got.NextIn != 0 || got.FullIn != pause.Rate.Window-20*time.Second {
		t.Errorf("%+v; want the next permit at once, and the steps to begin anew later", got)
	}
	s.must(s.admin().Reset(t.Context(), c))
	s.wantStatus(c, 0, 1)
}

// inspectTogether inspects several keys, limits and algorithms in one call.
func inspectTogether(t *testing.T, s *suite) {
	var claims []limiter.Claim
	for i, a := range rated() {
		for _, window := range []time.Duration{time.Minute, time.Hour} {
			c := oneClaim(LimitOf(a, fmt.Sprintf("together-%s:%v", a, window), limiter.Rate{Count: 9, Window: window}), s.key(), 1)
			s.allowed(c, i+1)
			claims = append(claims, c...)
		}
	}
	in, err := s.admin().Inspect(t.Context(), claims)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range in.Statuses {
		if want := int64(i/2 + 1); got.Used != want && (!claims[i].Limit.Algorithm.HasBurst() || got.Used > want) {
			t.Errorf("%s: %+v, want %d used", claims[i].Limit.Name, got, want)
		}
	}
}
