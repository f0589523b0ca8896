package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/rounds"
)

// oneOf is a claim for one permit, the only one there is, of each algorithm.
func oneOf(a limiter.Algorithm) []limiter.Claim {
	l := limitertest.LimitOf(a, "sms.unused:1h", limiter.Rate{Count: 1, Window: time.Hour})
	return []limiter.Claim{{Limit: l, Key: limiter.KeyOf("CN"), Cost: 1, Value: limiter.KeyOf("ann")}}
}

// grantedInPlace takes claims of a Memory, as a process does while Redis is away, and reports that.
func (s *testStore) grantedInPlace(share *limiter.Memory, claims []limiter.Claim) limiter.Permit {
	s.t.Helper()
	var d limiter.Decision
	if err := share.Take(s.t.Context(), claims, &d); err != nil || !d.Allowed {
		s.t.Fatalf("the share: %+v, %v", d, err)
	}
	s.store.Report(claims, d.Permit)
	return d.Permit
}

// What was granted in place of Redis is given back once Redis has heard of it, once, whatever the
// clocks of the two say, and in whatever windows it was reported.
func TestReportRefund_GivesBackExactly(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	for a := range limiter.NumAlgorithms {
		for _, ahead := range []time.Duration{-time.Hour / 2, 0, time.Hour / 2} { // of Redis's clock
			t.Run(fmt.Sprint(a, ahead), func(t *testing.T) {
				s.t = t
				s.empty()
				s.do("set", redisstore.TestClock, time.Now().Add(ahead).UnixMilli())
				share := limiter.NewMemory(limiter.MemoryOptions{})
				c := oneOf(a)
				p := s.grantedInPlace(share, c)
				s.quiet()
				s.advance(1234 * time.Millisecond)
				other := oneOf(a)
				other[0].Value = limiter.KeyOf("bob")
				if d := s.take(other); d.Allowed {
					t.Fatalf("what was reported does not count: %+v", d)
				}
				for range 2 {
					s.check(s.store.StartRefundReported(c, p)())
				}
				s.allowed(other, 1)
				if d := s.take(c); d.Allowed {
					t.Errorf("given back twice: %+v", d)
				}
				s.check(s.store.StartRefundReported(c, p)())
				if d := s.take(c); d.Allowed {
					t.Errorf("what another has taken was given back: %+v", d)
				}
			})
		}
	}
}

// Also if Redis counts it among later permits, because its counter has started anew since; not after it has expired.
func TestReportRefund_OfWhatIsOlderThanTheCounter(t *testing.T) {
	t.Parallel()
	for a := range limiter.NumAlgorithms {
		if a == limiter.Cooldown || a == limiter.Concurrent {
			continue // one at a time, and leases
		}
		for _, age := range []time.Duration{time.Minute, time.Hour - 1500*time.Millisecond} {
			if age > time.Minute && a != limiter.FixedWindow && a != limiter.GCRA {
				continue // Redis knows by itself when it expires
			}
			t.Run(fmt.Sprint(a, age), func(t *testing.T) {
				s := newClockedTestStore(t)
				s.advance(time.Hour / 2) // so that all is of the same two sliding windows
				c, later := oneOf(a), oneOf(a)
				c[0].Limit.Rate.Count, later[0].Limit.Rate.Count, later[0].Value = 9, 9, limiter.KeyOf("bob")
				s.allowed(later, 1)
				p := limiter.Permit{ID: [16]byte{1}, At: time.Now().Add(-age)}
				s.check(s.store.TellAged(t.Context(), c, p, age))
				s.left(later, 7)
				want := int64(8)
				if age > time.Minute {
					want = 7
					s.until("it expires", func() bool { return time.Since(p.At) > time.Hour })
				}
				for range 2 {
					s.check(s.store.StartRefundReported(c, p)())
				}
				s.left(later, want)
			})
		}
	}
}

// So it is of limiters that are shared with Redisson, in both formats.
func TestReportRefund_GivesBackToRedisson(t *testing.T) {
	for format, of := range map[string]limiter.RedissonFormat{"log": limiter.RedissonByte, "window": limiter.RedissonWindow} {
		t.Run(format, func(t *testing.T) {
			s := newTestStore(t)
			c := claim(10, time.Hour, 1)
			c[0].RedissonName, c[0].RedissonFormat = "demo", of
			s.do("hset", "demo", "rate", 5, "interval", 3_600_000, "type", 0)
			share := limiter.NewMemory(limiter.MemoryOptions{})
			p := s.grantedInPlace(share, c)
			s.grantedInPlace(share, c)
			s.quiet()
			s.left(c, 3)
			for range 2 {
				s.check(s.store.StartRefundReported(c, p)())
			}
			s.left(c, 4)
		})
	}
}

// A window of Redisson begins when its first permit counts, so that this one can be given back, even if a millisecond ends
// between two commands of the script.
func TestRefund_TheFirstOfAWindowOfRedisson(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	for i := range rounds.Of(200) {
		c := claim(5, time.Hour, 1)
		c[0].RedissonName, c[0].RedissonFormat = fmt.Sprint("demo", i), limiter.RedissonWindow
		d := s.allowed(c, 1)
		s.check(s.store.StartRefund(c, d.Permit)())
		s.left(c, 5)
	}
}

// Of several windows each is given back where it is: one that Redis has not heard of is not reported,
// and one that was dropped, so that Redis never heard of it, gives nothing of others back.
func TestReportRefund_EachWindowByItself(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.GCRA} {
		t.Run(a.String(), func(t *testing.T) {
			s.t = t
			told, pending, dropped := oneOf(a), oneOf(a), oneOf(a)
			told[0].Key, pending[0].Key, dropped[0].Key = limiter.KeyOf("told"), limiter.KeyOf("pending"), limiter.KeyOf("dropped")
			p := limiter.Permit{ID: [16]byte{1}, At: time.Now()}
			s.store.Report(told, p)
			s.quiet()
			s.allowed(dropped, 1)
			s.server.Signal(syscall.SIGSTOP)
			s.store.Report(pending, p)
			refunded := s.store.StartRefundReported(append(append(told[:1:1], pending...), dropped...), p)
			s.server.Signal(syscall.SIGCONT)
			s.check(refunded())
			s.quiet()
			s.left(told, 1)
			s.left(pending, 1)
			s.left(dropped, 0)
		})
	}
}

// As soon as nothing is pending, what was reported is returned by its subject, on another node too.
func TestReportRefund_IsNotedBeforeItIsReported(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	other := storeOn(t, connect(t, s.server.Addr), redisstore.Options{Timeout: patient, CachedRefusals: -1})
	for i := range rounds.Of(60) {
		limits, c := unused(1000, fmt.Sprint(i))
		s.grantedInPlace(limiter.NewMemory(limiter.MemoryOptions{}), []limiter.Claim{c})
		for began := time.Now(); s.store.Unreported() > 0; runtime.Gosched() {
			if time.Since(began) > await.Limit {
				t.Fatal("not reported")
			}
		}
		if n, err := other.Return(t.Context(), limits, c.Value); n != 1 || err != nil {
			t.Fatalf("permits of %d decisions are returned at once, %v; want 1", n, err)
		}
	}
}

// A node that withdraws what it granted and has Redis return what is noted gives it back once, at whatever moment of its
// report: a counter would give back twice what is told to it twice.
func TestReportRefund_WithdrawnOrReturnedOnce(t *testing.T) {
	t.Parallel()
	for _, a := range []limiter.Algorithm{limiter.GCRA, limiter.FixedWindow, limiter.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) {
			s := newTestStore(t)
			const others = 400
			limits, c := unused(others+1, "others")
			c.Limit.Algorithm, c.Limit.Rate.Window, c.Cost = a, 30*24*time.Hour, others // nothing of gcra flows back meanwhile
			s.allowed([]limiter.Claim{c}, 1)
			c.Cost = 1
			withdrawn := 0
			for i := range rounds.Of(100) {
				c.Value = limiter.KeyOf(fmt.Sprint(i))
				p := s.grantedInPlace(limiter.NewMemory(limiter.MemoryOptions{}), []limiter.Claim{c})
				some := time.Duration(rand.IntN(5000)) * time.Microsecond
				for began := time.Now(); time.Since(began) < some; runtime.Gosched() {
				}
				back := 0
				if s.withdrawn([]limiter.Claim{c}, p) {
					back, withdrawn = 1, withdrawn+1
				}
				n, err := s.store.Return(t.Context(), limits, c.Value)
				if back += n; back != 1 || err != nil {
					t.Fatalf("given back %d times in round %d, %v; want once", back, i, err)
				}
				s.quiet()
				s.left([]limiter.Claim{c}, 1)
			}
			t.Logf("%d were withdrawn", withdrawn)
		})
	}
}

// What was granted in place of Redis is returned by its subject once Redis has heard of it.
func TestReportRefund_ReturnsBySubject(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.Conversion} {
		t.Run(a.String(), func(t *testing.T) {
			s := newTestStore(t)
			limits, c := unused(20, "")
			c.Limit.Algorithm = a
			if a == limiter.Conversion {
				c.Limit.Conversion = 50
			}
			day := *c.Limit
			day.Name, day.Rate.Window = "sms.unused:1d", 24*time.Hour
			limits = append(limits, &day)
			share := limiter.NewMemory(limiter.MemoryOptions{})
			for i := range 6 {
				c.Value = limiter.KeyOf(fmt.Sprint(i))
				both := []limiter.Claim{c, c}
				both[1].Limit = &day
				s.grantedInPlace(share, both)
			}
			s.quiet()
			s.left([]limiter.Claim{c}, 14)
			for i := range 6 {
				s.returns(limits, fmt.Sprint(i), 1)
			}
			s.left([]limiter.Claim{c}, 20)
			c.Limit = &day
			s.left([]limiter.Claim{c}, 20)
		})
	}
}
