// Package limitertest is the suite that every limiter.Store must pass: what the
// interface promises, at the edges, in random schedules against a model, and
// with many callers at once.
package limitertest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A Subject is a store under test, with its clock in the suite's hand: it stands
// still between calls of Advance.
type Subject struct {
	Store limiter.Store
	// Advance moves the store's clock, backwards when d is negative.
	Advance func(d time.Duration)
	// BucketState reads what is kept of a claim's token bucket after it was granted: permits
	// left, and the sum of those that are out. Nil if the store cannot say.
	BucketState func(c limiter.Claim) (left, out int64, err error)
	// Steps is how long each of the random schedules of several limits is; 600
	// when zero. There are 100 of a kind, or as many as -rapid.checks says, and a
	// fifth with -short. Below 20 the rest of the suite is short as well, for a
	// store that is slow.
	Steps int
	// Schedules is how many of a kind there are at most, for a store that is slow: it is
	// then worth more that each is long. As many as above when zero.
	Schedules int
	// Calls is how many random calls are compared with the oracle of each
	// algorithm, 60,000 when zero, in as many schedules as above.
	Calls int
	// ConcurrentKeys is how many keys of such a schedule are asked at once, for a store
	// that is quicker then; one when zero.
	ConcurrentKeys int
	// PerKeyTime says that a decision over several keys is not made at one moment, as
	// in a cluster: then its time is not exact for each of its claims.
	PerKeyTime bool
}

// A reporter is what *testing.T and *rapid.T have in common.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Run tests the stores that open makes; each test opens its own.
// The log says how to repeat the random ones.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	printSeed(t)
	logs := []suiteTest{
		{"Window", window},
		{"Costs", costs},
		{"WaitIsExact", waitIsExact},
		{"AllOrNone", allOrNone},
		{"BadClaims", badClaims},
		{"Peek", peek},
		{"RateChanges", rateChanges},
		{"RefundOnce", refundOnce},
		{"RefundAfterReturn", refundAfterReturn},
		{"RefundMerged", refundMerged},
		{"ClockSetBack", clockSetBack},
		{"Schedules", schedules},
		{"SchedulesMerged", schedulesMerged},
		{"Concurrent", concurrent},
		{"Inspect", inspect},
	}
	for _, test := range append(logs, []suiteTest{
		{"Random", randomSchedules},
		{"Mixed", mixed},
		{"Promises", promises},
		{"Leases", leases},
		{"Keeping", keeping},
		{"Distinct", distinct},
		{"Cooldown", cooldown},
		{"InspectAll", inspectAll},
		{"Together", together},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, &suite{Subject: open(t), t: t})
		})
	}
	t.Run("SlidingLog", func(t *testing.T) {
		for _, test := range logs {
			t.Run(test.name, func(t *testing.T) {
				subject := open(t)
				subject.Store, subject.BucketState = slidingLogStore{subject.Store.(limiter.AdminStore)}, nil
				test.run(t, &suite{Subject: subject, t: t})
			})
		}
	})
}

type suiteTest struct {
	name string
	run  func(t *testing.T, s *suite)
}

// A suite is one test's subject with verbs.
type suite struct {
	Subject
	t    testing.TB
	keys atomic.Int64
}

// sizes returns the numbers that are tried: all of them, or those below 100 when
// the suite is to be short.
func (s *suite) sizes(counts ...int64) []int64 {
	if s.steps() >= 20 {
		return counts
	}
	return slices.DeleteFunc(counts, func(n int64) bool { return n >= 100 })
}

// key is one that nobody used before.
func (s *suite) key() limiter.Key {
	return limiter.KeyOf(s.t.Name(), fmt.Sprint(s.keys.Add(1)))
}

func limit(name string, count int64, length time.Duration) *limiter.Limit {
	return &limiter.Limit{Name: name, Rate: limiter.Rate{Count: count, Window: length}}
}

func oneClaim(l *limiter.Limit, k limiter.Key, cost int64) []limiter.Claim {
	return []limiter.Claim{{Limit: l, Key: k, Cost: cost}}
}

// take takes and fails the test on errors.
func (s *suite) take(t reporter, claims []limiter.Claim) limiter.Decision {
	t.Helper()
	var d limiter.Decision
	if err := s.Store.Take(s.t.Context(), claims, &d); err != nil {
		t.Fatalf("take: %v", err)
	}
	s.checkDecision(t, claims, d)
	s.checkConserved(t, claims, d)
	return d
}

func (s *suite) peek(t reporter, claims []limiter.Claim) limiter.Decision {
	t.Helper()
	var d limiter.Decision
	if err := s.Store.Peek(s.t.Context(), claims, &d); err != nil {
		t.Fatalf("peek: %v", err)
	}
	return d
}

func (s *suite) refund(t reporter, claims []limiter.Claim, p limiter.Permit) {
	t.Helper()
	if err := s.Store.Refund(s.t.Context(), claims, p); err != nil {
		t.Fatalf("refund: %v", err)
	}
}

// allowed takes n times and wants all granted.
func (s *suite) allowed(claims []limiter.Claim, n int) limiter.Decision {
	s.t.Helper()
	var d limiter.Decision
	for i := range n {
		if d = s.take(s.t, claims); !d.Allowed {
			s.t.Fatalf("take %d of %d: refused, want granted: %+v", i+1, n, d)
		}
	}
	return d
}

// denied takes once and wants a refusal with this wait.
func (s *suite) denied(claims []limiter.Claim, wait time.Duration) limiter.Decision {
	s.t.Helper()
	d := s.take(s.t, claims)
	if d.Allowed || d.Wait != wait {
		s.t.Fatalf("got allowed %v wait %v, want a refusal with wait %v", d.Allowed, d.Wait, wait)
	}
	return d
}

// left wants so many permits left.
func (s *suite) left(claims []limiter.Claim, want int64) {
	s.t.Helper()
	if got := s.peek(s.t, claims).Outcomes[0].Remaining; got != want {
		s.t.Fatalf("%d permits left, want %d", got, want)
	}
}

// checkDecision checks what holds of every decision.
func (s *suite) checkDecision(t reporter, claims []limiter.Claim, d limiter.Decision) {
	t.Helper()
	if len(d.Outcomes) != len(claims) || d.At.IsZero() {
		t.Fatalf("%d outcomes for %d claims, at %v", len(d.Outcomes), len(claims), d.At)
	}
	if d.Allowed == d.Permit.IsZero() && len(claims) > 0 {
		t.Fatalf("allowed %v with permit %v", d.Allowed, d.Permit)
	}
	var longest time.Duration
	all := true
	for i, o := range d.Outcomes {
		c := claims[i]
		if o.Remaining < 0 || o.Remaining > c.Limit.Capacity() || o.Wait < 0 || o.Wait > c.Limit.Horizon() {
			t.Fatalf("outcome out of range: %+v", o)
		}
		stands := c.Limit.Algorithm == limiter.Distinct && o.Wait == 0 // its value does
		if !stands && (o.Wait == 0) != (o.Remaining >= c.Cost) {
			t.Fatalf("wait %v with %d left for a cost of %d", o.Wait, o.Remaining, c.Cost)
		}
		if !o.Allowed {
			all, longest = false, max(longest, o.Wait)
		}
	}
	if d.Allowed != all || d.Wait != longest {
		t.Fatalf("decision %v wait %v, but outcomes say %v %v", d.Allowed, d.Wait, all, longest)
	}
}

// checkConserved checks that what is left and what is out of token buckets that were
// just granted make up their rate.
func (s *suite) checkConserved(t reporter, claims []limiter.Claim, d limiter.Decision) {
	t.Helper()
	if s.BucketState == nil || !d.Allowed {
		return
	}
	for _, c := range claims {
		if c.Limit.Algorithm != limiter.TokenBucket {
			continue
		}
		left, out, err := s.BucketState(c)
		if err != nil || left+out != c.Limit.Rate.Count {
			t.Fatalf("%d left and %d out of %d (%v)", left, out, c.Limit.Rate.Count, err)
		}
	}
}
