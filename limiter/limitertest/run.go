// Package limitertest is a conformance suite for implementations of limiter.Store. It
// checks the guarantees of package limiter with edge cases, with random schedules against
// a model of each algorithm, and with many concurrent callers.
package limitertest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A Subject is a store under test. The suite controls its clock, which stands still
// between calls of Advance.
type Subject struct {
	Store limiter.Store
	// Advance moves the store's clock, backwards if d is negative.
	Advance func(d time.Duration)
	// BucketState returns the stored state of a claim's token bucket after it was
	// granted: the number of available permits, and the sum of the taken ones. It is nil
	// if the store does not expose them.
	BucketState func(c limiter.Claim) (left, out int64, err error)
	// Steps is the length of each random schedule of several limits; 600 by default.
	// There are 100 of each kind, or as many as -rapid.checks says, and a fifth of that
	// with -short. Below 20 the rest of the suite is short too, for a slow store.
	Steps int
	// Schedules is the maximum number of schedules of each kind, for a slow store, where
	// a few long ones find more. By default there is no further limit.
	Schedules int
	// Calls is the number of random calls that are compared with the oracle of each
	// algorithm, over all schedules; 60,000 by default.
	Calls int
	// ConcurrentKeys is the number of keys that such a schedule uses concurrently, for a
	// store that is faster with concurrent calls; one by default.
	ConcurrentKeys int
	// Disturb, if it is not nil, is called now and then during random histories of conversions. It makes something
	// fail, waits until the store decides again, and reports whether the store has forgotten everything.
	Disturb func() (forgotten bool)
	// MinWindow is the minimum window of random histories of conversions, for a store that forgets by a real clock
	// what a test whose clock stands still meanwhile remembers: it must be longer than the test may be interrupted.
	MinWindow time.Duration
	// PerKeyTime is true if the keys of a decision are evaluated at different times, as
	// in a cluster. Then its time is not exact for each claim.
	PerKeyTime bool
}

// A reporter is the common part of *testing.T and *rapid.T.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Run tests the stores that open returns; each test opens its own. The log says how to
// repeat the random schedules.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	printSeed(t)
	logs := []suiteTest{
		{"Window", window},
		{"WaitIsExact", waitIsExact},
		{"AllOrNone", allOrNone},
		{"BadClaims", badClaims},
		{"RefundOnce", refundOnce},
		{"RefundAfterReturn", refundAfterReturn},
		{"RefundPart", refundPart},
		{"RefundMerged", refundMerged},
		{"ClockSetBack", clockSetBack},
		{"Schedules", schedules},
		{"SchedulesMerged", schedulesMerged},
		{"Concurrent", concurrent},
		{"Charge", charge},
		{"ChargesRandom", chargesRandom},
	}
	for _, test := range append(logs, []suiteTest{
		{"RefundPartOfEach", refundPartOfEach},
		{"ChargeOfEach", chargeOfEach},
		{"Random", randomSchedules},
		{"Mixed", mixed},
		{"ClockSteps", clockSteps},
		{"Leases", leases},
		{"Keeping", keeping},
		{"Distinct", distinct},
		{"Cooldown", cooldown},
		{"LimitChanges", limitChanges},
		{"Inspect", inspect},
		{"Shadows", shadows},
		{"ShadowsRandom", shadowsRandom},
		{"ShadowsBound", shadowsBound},
		{"Returned", returned},
		{"ReturnedOnce", returnedOnce},
		{"ReturnedRandom", returnedRandom},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, &suite{Subject: open(t), t: t})
		})
	}
	t.Run("SlidingLog", func(t *testing.T) {
		if (&suite{Subject: open(t)}).isShort() {
			logs = logs[:1] // Random has this algorithm too
		}
		for _, test := range logs {
			t.Run(test.name, func(t *testing.T) {
				test.run(t, &suite{Subject: open(t), t: t, algorithm: limiter.SlidingLog})
			})
		}
	})
}

// A suiteTest is one test of the suite.
type suiteTest struct {
	name string
	run  func(t *testing.T, s *suite)
}

// A suite is the state of one test, with its helper methods.
type suite struct {
	Subject
	t         testing.TB
	algorithm limiter.Algorithm // of the limits that window and others test: TokenBucket and SlidingLog promise the same
	keys      atomic.Int64
}

// sizes returns the counts to test: all of them, or those below 100 if the suite is
// short.
func (s *suite) sizes(counts ...int64) []int64 {
	if !s.isShort() {
		return counts
	}
	return slices.DeleteFunc(counts, func(n int64) bool { return n >= 100 })
}

// isShort reports whether the store is a slow one.
func (s *suite) isShort() bool { return s.steps() < 20 }

// key returns an unused key.
func (s *suite) key() limiter.Key {
	return limiter.KeyOf(s.t.Name(), fmt.Sprint(s.keys.Add(1)))
}

// limit is a limit of the algorithm that is tested.
func (s *suite) limit(name string, count int64, length time.Duration) *limiter.Limit {
	return LimitOf(s.algorithm, name, limiter.Rate{Count: count, Window: length})
}

func limit(name string, count int64, length time.Duration) *limiter.Limit {
	return &limiter.Limit{Name: name, Rate: limiter.Rate{Count: count, Window: length}}
}

func oneClaim(l *limiter.Limit, k limiter.Key, cost int64) []limiter.Claim {
	return []limiter.Claim{{Limit: l, Key: k, Cost: cost}}
}

// valued is one claim of l for k with a value or subject.
func valued(l *limiter.Limit, k, value limiter.Key) []limiter.Claim {
	return []limiter.Claim{{Limit: l, Key: k, Cost: 1, Value: value}}
}

// take calls Take and fails the test on errors.
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
	if !d.Permit.IsZero() {
		t.Fatalf("peek returned the permit %v", d.Permit)
	}
	return d
}

func (s *suite) refund(t reporter, claims []limiter.Claim, p limiter.Permit) {
	t.Helper()
	if err := s.Store.Refund(s.t.Context(), claims, p); err != nil {
		t.Fatalf("refund: %v", err)
	}
}

// allowed calls Take n times, which must grant all claims.
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

// denied calls Take once, which must refuse with this wait.
func (s *suite) denied(claims []limiter.Claim, wait time.Duration) limiter.Decision {
	s.t.Helper()
	d := s.take(s.t, claims)
	if d.Allowed || d.Wait != wait {
		s.t.Fatalf("got allowed %v wait %v, want a refusal with wait %v", d.Allowed, d.Wait, wait)
	}
	return d
}

// refused calls Take once, which must refuse, whatever the wait.
func (s *suite) refused(claims []limiter.Claim) {
	s.t.Helper()
	if d := s.take(s.t, claims); d.Allowed {
		s.t.Fatalf("granted: %+v", d)
	}
}

// admin is the store with its operations for operators.
func (s *suite) admin() limiter.AdminStore { return s.Store.(limiter.AdminStore) }

// must ends the test if an operator's call has failed.
func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// left checks the number of available permits.
func (s *suite) left(claims []limiter.Claim, want int64) {
	s.t.Helper()
	if got := s.peek(s.t, claims).Outcomes[0].Remaining; got != want {
		s.t.Fatalf("%d permits left, want %d", got, want)
	}
}

// checkDecision checks what holds for every decision.
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
		isActive := c.Limit.Algorithm.HasValues() && o.Wait == 0 // the value is active
		if !isActive && (o.Wait == 0) != (o.Remaining >= c.Cost) {
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

// checkConserved checks that the available and the taken permits of token buckets that
// were just granted add up to the rate.
func (s *suite) checkConserved(t reporter, claims []limiter.Claim, d limiter.Decision) {
	t.Helper()
	if s.BucketState == nil || !d.Allowed {
		return
	}
	for _, c := range claims {
		if !c.Limit.Algorithm.IsRedisson() {
			continue
		}
		left, out, err := s.BucketState(c)
		if err != nil || left+out != c.Limit.Rate.Count {
			t.Fatalf("%d left and %d out of %d (%v)", left, out, c.Limit.Rate.Count, err)
		}
	}
}

// RunTokenBucket runs the part of Run for stores that only have token buckets without
// bans and without merged entries, such as limiters shared with Redisson.
func RunTokenBucket(t *testing.T, open func(t *testing.T) Subject) {
	printSeed(t)
	for name, run := range map[string]func(t *testing.T, s *suite){
		"Window": window, "WaitIsExact": waitIsExact,
		"RefundOnce": refundOnce, "RefundAfterReturn": refundAfterReturn, "ClockSetBack": clockSetBack,
		"Random": func(t *testing.T, s *suite) { s.random(t, s.algorithm, 1) },
	} {
		t.Run(name, func(t *testing.T) { run(t, &suite{Subject: open(t), t: t}) })
	}
}

// clockSteps moves the clock of the store by a step, as a failover to a replica with
// another clock does. What was taken before counts as taken now at the latest: a refused
// key passes again after the wait that its first refusal tells, however often it asks
// meanwhile, and no window holds more than the rate.
func clockSteps(t *testing.T, s *suite) {
	const window = 10 * time.Second
	for _, l := range steppedLimits(window) {
		for _, steps := range [][]time.Duration{{-500 * time.Millisecond}, {-10 * time.Second}, {-time.Hour}, {time.Hour, -time.Hour}} {
			t.Run(fmt.Sprint(l.Algorithm, steps), func(t *testing.T) {
				c := []limiter.Claim{{Key: s.key(), Limit: l, Cost: 1}}
				s.Advance(3 * time.Hour) // nothing that is taken is in the future of an earlier row
				s.Advance(-steps[0] / 2)
				if len(steps) > 1 {
					s.Advance(steps[0])
				}
				s.fill(t, c)
				s.Advance(steps[len(steps)-1])
				first := s.take(t, distinctly(c, 100))
				wait := first.Wait
				if first.Allowed || wait <= 0 || wait > longestWait(l) {
					t.Fatalf("allowed %t, wait %v; want a refusal of at most %v", first.Allowed, wait, longestWait(l))
				}
				for left := wait; left > 0; {
					step := min(left, max(wait/5, time.Millisecond))
					if d := s.take(t, distinctly(c, 100)); d.Allowed || d.Wait > left {
						t.Fatalf("%v before the end: allowed %t, wait %v", left, d.Allowed, d.Wait)
					}
					s.Advance(step)
					left -= step
				}
				if d := s.take(t, distinctly(c, 100)); !d.Allowed {
					t.Errorf("not allowed after the wait of %v: wait %v more", wait, d.Wait)
				}
			})
		}
	}
}

// steppedLimits are limits of each algorithm with a lease.
func steppedLimits(window time.Duration) []*limiter.Limit {
	cooldown := pauses(window/2, window)
	cooldown.Rate.Window = 2 * window
	all := []*limiter.Limit{cooldown}
	for a := range limiter.NumAlgorithms {
		if !a.HasSteps() && !a.HasConversion() {
			all = append(all, LimitOf(a, "steps-"+a.String(), limiter.Rate{Count: 4, Window: window}))
		}
	}
	return all
}

// longestWait is the longest wait for one permit of l.
func longestWait(l *limiter.Limit) time.Duration {
	if l.Algorithm.HasSteps() {
		return l.Steps[len(l.Steps)-1]
	}
	return l.Horizon()
}

// fill takes permits of c until it is refused.
func (s *suite) fill(t *testing.T, c []limiter.Claim) {
	t.Helper()
	for n := range 100 {
		if !s.take(t, distinctly(c, n)).Allowed {
			return
		}
	}
	t.Fatal("never refused")
}

// distinctly is c with the n-th value if its limit counts values.
func distinctly(c []limiter.Claim, n int) []limiter.Claim {
	if c[0].Limit.Algorithm.HasValues() {
		c[0].Value = limiter.Key{byte(n), 1}
	}
	return c
}
