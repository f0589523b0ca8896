package limitertest

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-proxy/weir/limiter"
)

// charge takes more for what p took, and fails the test on errors.
func (s *suite) charge(t reporter, claims []limiter.Claim, p limiter.Permit) {
	t.Helper()
	if err := s.admin().Charge(s.t.Context(), claims, p); err != nil {
		t.Fatalf("charge: %v", err)
	}
}

// charge: what a request has cost more is taken once, also beyond what is left, and leaves the window when it was
// charged one window ago.
func charge(t *testing.T, s *suite) {
	for _, count := range s.sizes(10, 50, 500) {
		l, k := s.limit("charge", count, 10*time.Second), s.key()
		c := func(cost int64) []limiter.Claim { return oneClaim(l, k, cost) }
		p := s.allowed(c(2), 1).Permit
		for range 3 {
			s.charge(t, c(3), p)
			s.left(c(1), count-5)
		}
		s.Advance(time.Second)
		other := s.allowed(c(1), 1).Permit
		s.charge(t, c(3*count), other) // a debt of more than the capacity
		s.charge(t, c(3*count), other)
		s.deniedByReports(c(1))
		s.refund(t, c(1), other) // what was charged stays
		s.refund(t, c(2), p)
		s.deniedByReports(c(1))
		s.Advance(10 * time.Second)
		s.left(c(1), count)
	}
}

// deniedByReports checks that a request waits for a window of 10 s. What was reported or charged may have got older on its
// way to the store, on a clock that Advance does not set.
func (s *suite) deniedByReports(claims []limiter.Claim) {
	s.t.Helper()
	if d := s.take(s.t, claims); d.Allowed || d.Wait <= 9*time.Second || d.Wait > 10*time.Second {
		s.t.Fatalf("got allowed %v wait %v, want a refusal for a window", d.Allowed, d.Wait)
	}
}

// chargeOfEach: all that count costs can be charged, and nothing else; no debt makes a request wait for longer than the horizon.
func chargeOfEach(t *testing.T, s *suite) {
	for a := range limiter.NumAlgorithms {
		l, k := LimitOf(a, "each", limiter.Rate{Count: 100, Window: 100 * time.Second}), s.key()
		var p limiter.Permit
		if a.HasConversion() || a.HasSteps() || a.HasValues() || a.HasLeases() {
			if err := s.admin().Charge(t.Context(), oneClaim(l, k, 1), p); !errors.Is(err, limiter.ErrInvalidLimit) {
				t.Errorf("%s: %v; want ErrInvalidLimit", a, err)
			}
			continue
		}
		p = s.allowed(oneClaim(l, k, 10), 1).Permit
		s.charge(t, oneClaim(l, k, 20), p)
		s.charge(t, oneClaim(l, k, 20), p)
		s.left(oneClaim(l, k, 1), 70)
		p = s.allowed(oneClaim(l, k, 60), 1).Permit
		s.charge(t, oneClaim(l, k, 1000), p)
		if d := s.take(t, oneClaim(l, k, 1)); d.Allowed || d.Wait <= 0 || d.Wait > l.Horizon() {
			t.Errorf("%s: after a debt of 1000: %+v", a, d)
		}
		s.Advance(l.Horizon())
		s.left(oneClaim(l, k, 1), 100)
	}
	shared := oneClaim(limit("each", 5, time.Second), s.key(), 1)
	shared[0].RedissonName = "java"
	if err := s.admin().Charge(t.Context(), shared, limiter.Permit{}); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("shared with Redisson: %v; want ErrInvalidLimit", err)
	}
	for _, cost := range []int64{0, -1, limiter.MaxCount + 1} {
		if err := s.admin().Charge(t.Context(), oneClaim(limit("each", 5, time.Second), s.key(), cost), limiter.Permit{}); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Errorf("cost %d: %v; want ErrInvalidCost", cost, err)
		}
	}
}

// A settledRequest is what a random history has taken for one request.
type settledRequest struct {
	permit           limiter.Permit
	at, settledAt    time.Duration
	reserved, actual int64
	settled          bool
}

// chargesRandom: in any window, what the requests in it have used after all is at most the limit, and what was reserved
// too little for those that were in flight at one time: none that is settled lets others use too much.
func chargesRandom(t *testing.T, s *suite) {
	charged, owed := 0, 0
	s.runSchedules(t, func(t *rapid.T) {
		count, length := rapid.Int64Range(2, 100).Draw(t, "count"), time.Duration(rapid.Int64Range(60, 1000).Draw(t, "window"))*time.Second
		l, k := s.limit("charges", count, length), s.key()
		var all []settledRequest
		now := time.Duration(0)
		for range s.steps() / 3 {
			step := time.Duration(rapid.Int64Range(0, int64(length/time.Millisecond)/4).Draw(t, "step")) * time.Millisecond
			s.Advance(step)
			now += step
			if open := openRequests(all); len(open) > 0 && (len(open) > 4 || rapid.Bool().Draw(t, "settle")) {
				r := &all[rapid.SampledFrom(open).Draw(t, "of")]
				r.settled, r.settledAt = true, now
				for range rapid.IntRange(1, 2).Draw(t, "times") {
					if missing := r.actual - r.reserved; missing > 0 {
						s.charge(t, oneClaim(l, k, missing), r.permit)
						charged++
					} else if missing < 0 {
						s.refund(t, oneClaim(l, k, -missing), r.permit)
					}
				}
			} else {
				r := settledRequest{at: now, reserved: rapid.Int64Range(1, count).Draw(t, "reserved"), actual: rapid.Int64Range(0, 2*count).Draw(t, "actual")}
				d := s.take(t, oneClaim(l, k, r.reserved))
				counted := countedAt(all, now, length)
				if want := counted+r.reserved <= count; d.Allowed != want {
					t.Fatalf("%v: %d of %d allowed: %v; want %v", now, r.reserved, count, d.Allowed, want)
				}
				if counted > count {
					owed++
				}
				if d.Allowed {
					r.permit = d.Permit
					all = append(all, r)
				}
			}
		}
	})
	if t.Logf("%d charges, %d requests while there was a debt", charged, owed); s.Schedules == 0 && !s.isShort() && (charged < 20 || owed < 10) {
		t.Error("the histories test little")
	}
}

// openRequests returns the indexes of those that are not settled.
func openRequests(all []settledRequest) (open []int) {
	for i := range all {
		if !all[i].settled {
			open = append(open, i)
		}
	}
	return open
}

// countedAt returns what counts of all at a time: what was reserved, unless it was returned within its window, from when it
// was taken on, and what was charged from when it was charged on.
func countedAt(all []settledRequest, now, length time.Duration) (n int64) {
	for _, r := range all {
		if r.at > now-length {
			n += r.reserved
			if r.settled && r.actual < r.reserved {
				n -= r.reserved - r.actual
			}
		}
		if r.settled && r.actual > r.reserved && r.settledAt > now-length {
			n += r.actual - r.reserved
		}
	}
	return n
}
