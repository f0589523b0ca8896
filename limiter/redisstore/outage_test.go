package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A call whose reply is lost is not sent again: it is unknown, it ends in time,
// and it costs its permits once, for one window.
func TestStore_TwiceIsOnce(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	way := redistest.NewFaultProxy(t, s.server.Addr)
	client := clientOf(t, redisstore.ClientConfig{Addrs: []string{way.Addr}, Timeout: patient})
	for _, count := range []int64{10, 100, 1000} {
		through := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient})
		c := claim(count, 10*time.Second, 3)
		s.do("del", name(c)+":value", name(c)+":permits", name(c)+":base")
		var d limiter.Decision
		s.check(through.Take(t.Context(), c, &d))
		way.Hold()
		ctx, cancel := context.WithCancel(t.Context())
		var took sync.WaitGroup
		took.Go(func() {
			if err := through.Take(ctx, c, &d); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("a lost reply: %v, want ErrUnavailable", err)
			}
		})
		s.until("the call has come through", func() bool {
			var d limiter.Decision
			return s.store.Peek(t.Context(), c, &d) == nil && d.Outcomes[0].Remaining == count-6
		})
		cancel() // the time of the call is over
		took.Wait()
		way.Cut() // the next reply is not that of this call
		way.Release()
		through.Close()
		s.left(c, count-6)
		s.advance(10 * time.Second)
		s.left(c, count)
		c[0].Cost = count
		s.allowed(c, 1)
		s.advance(20 * time.Second)
	}
}

// Even a client that sends again by default does not send a script again.
func TestStore_NoClientSendsAgain(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	way := redistest.NewFaultProxy(t, s.server.Addr)
	client := redis.NewClient(&redis.Options{Addr: way.Addr, ReadTimeout: 2 * time.Second, ContextTimeoutEnabled: true})
	defer client.Close()
	through := redisstore.NewWithTestClock(client, redisstore.Options{Timeout: 2 * time.Second})
	defer through.Close()
	c := claim(10, 10*time.Second, 1)
	var d limiter.Decision
	s.check(through.Take(t.Context(), c, &d))
	way.Hold()
	if err := through.Take(t.Context(), c, &d); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatalf("a lost reply: %v, want ErrUnavailable", err)
	}
	s.left(c, 8)
}

// A Redis that hangs costs a caller no more than its context or the timeout.
func TestStore_EndsInTime(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	client := clientOf(t, redisstore.ClientConfig{Addrs: []string{s.server.Addr}, BreakAfter: 99})
	c := claim(10, time.Minute, 1)
	var d limiter.Decision
	slow := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
	quick := storeOn(t, client, redisstore.Options{Timeout: 30 * time.Millisecond})
	s.server.Signal(syscall.SIGSTOP)
	defer s.server.Signal(syscall.SIGCONT)

	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := slow.Take(ctx, c, &d); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("with a deadline: %v", err)
	}
	for name, call := range map[string]func() error{
		"take":   func() error { return quick.Take(t.Context(), c, &d) },
		"peek":   func() error { return quick.Peek(t.Context(), c, &d) },
		"refund": func() error { return quick.Refund(t.Context(), c, limiter.Permit{At: time.UnixMilli(1)}) },
	} {
		if err := call(); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("%s with a timeout: %v", name, err)
		}
	}
	if took := time.Since(start); took > patient { // slow waits longer
		t.Errorf("four calls of 30 ms took %v", took)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if err := slow.Take(gone, c, &d); !errors.Is(err, limiter.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// A Redis that lost its scripts, or everything, serves the next call.
func TestStore_SurvivesFlushAndRestart(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	c := claim(100, time.Minute, 1)
	s.allowed(c, 2)
	s.do("script", "flush")
	s.allowed(c, 1)
	s.left(c, 97)

	s.server.Kill()
	var d limiter.Decision
	start := time.Now()
	if err := s.store.Take(t.Context(), c, &d); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("dead Redis: %v", err)
	}
	if took := time.Since(start); took > patient/2 { // without waiting for an answer
		t.Errorf("a dead Redis was noticed after %v", took)
	}
	s.server.Restart()
	s.until("an answer after the restart", func() bool { return s.store.Take(t.Context(), c, &d) == nil })
	if d.Outcomes[0].Remaining != 99 {
		t.Errorf("%d left in an empty Redis", d.Outcomes[0].Remaining)
	}
}

// A full Redis that may evict nothing is an error; then nothing was taken, and
// nothing is forgotten.
func TestStore_FullRedis(t *testing.T) {
	s := newClockedTestStore(t)
	for _, count := range []int64{10, 100} {
		for a := limiter.TokenBucket; a <= limiter.Concurrent; a++ {
			c := claim(count, 10*time.Second, 1)
			c[0].Limit.Algorithm = a
			s.allowed(c, int(count)-3)
			s.do("config", "set", "maxmemory", 1)
			var d limiter.Decision
			for range 4 {
				if err := s.store.Take(t.Context(), c, &d); !errors.Is(err, limiter.ErrUnavailable) {
					t.Fatalf("%s: a full Redis: %v", a, err)
				}
			}
			s.do("config", "set", "maxmemory", 0)
			s.left(c, 3)
			s.allowed(c, 3)
			s.advance(20 * time.Second)
		}
	}
}

// absent returns a testStore whose client has a breaker that opens at once, and a store whose breaker rests longer than await pauses between two looks.
func absent(t *testing.T, grace time.Duration) (*testStore, *redisstore.Store) {
	t.Helper()
	return absentFor(t, 200*time.Millisecond, grace)
}

func absentFor(t *testing.T, rest, grace time.Duration) (*testStore, *redisstore.Store) {
	t.Helper()
	s := newOwnTestStore(t)
	c := redisstore.ClientConfig{Addrs: []string{s.server.Addr}, Timeout: time.Second, BreakAfter: 1, BreakRest: rest}
	return s, storeOn(t, clientOf(t, c), redisstore.Options{Timeout: time.Second, CachedRefusals: -1, Grace: grace})
}

// missed asks for c until the absence of Redis is noticed, and reports a permit that was granted in its place.
func (s *testStore) missed(store *redisstore.Store, c []limiter.Claim) {
	s.t.Helper()
	s.until("the absence is noticed", func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Millisecond)
		defer cancel()
		_ = store.Take(ctx, c, new(limiter.Decision))
		return !store.Available()
	})
	store.Report(c, limiter.Permit{ID: [16]byte{1}})
}

// A Redis that fails is not asked until it is back and the others have had the
// time to report: and then it is, without anybody asking.
func TestAbsence_BeginsWithTheBreakerAndEndsAfterSettling(t *testing.T) {
	t.Parallel()
	const grace = 300 * time.Millisecond
	s, store := absent(t, grace)
	c := claim(10, time.Hour, 1)
	var d limiter.Decision
	if err := store.Take(t.Context(), c, &d); err != nil || !store.Available() {
		t.Fatalf("at first: %v", err)
	}
	s.server.Kill()
	s.missed(store, c)
	s.server.Restart()
	back := time.Now()
	s.until("Redis is told", func() bool { return store.Unreported() == 0 })
	s.until("it settles, told before", func() bool { return store.Settling() && store.Unreported() == 0 || store.Available() })
	s.until("the absence ends", store.Available)
	if store.Settling() {
		t.Error("it settles when the absence is over")
	}
	if after := time.Since(back); after < grace {
		t.Errorf("the absence ended %v after Redis was back, want at least %v", after, grace)
	}
	if err := store.Take(t.Context(), c, &d); err != nil || d.Outcomes[0].Remaining != 8 {
		t.Errorf("the first decision after: %v %+v, want 8 left of an empty Redis that heard of 1", err, d)
	}
}

// However long a breaker would rest, its process learns as soon as others do that
// Redis is back.
func TestAbsence_EndsBeforeTheBreakerRested(t *testing.T) {
	t.Parallel()
	s, store := absentFor(t, time.Hour, time.Millisecond)
	c := claim(10, time.Hour, 1)
	s.server.Kill()
	s.missed(store, c)
	s.server.Restart()
	s.until("the absence ends", store.Available)
	var d limiter.Decision
	if err := store.Take(t.Context(), c, &d); err != nil || d.Outcomes[0].Remaining != 8 {
		t.Errorf("the first decision after: %v %+v, want 8 left", err, d)
	}
}

// One call that fails is no absence: what was granted in its place is told at
// once, and Redis goes on deciding.
func TestAbsence_OneFailureIsNone(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	way := redistest.NewFaultProxy(t, s.server.Addr)
	client := clientOf(t, redisstore.ClientConfig{Addrs: []string{way.Addr}, Timeout: 2 * time.Second})
	store := storeOn(t, client, redisstore.Options{Timeout: time.Second, CachedRefusals: -1, Grace: time.Hour})
	c := claim(10, time.Hour, 1)
	var d limiter.Decision
	s.check(store.Take(t.Context(), c, &d))
	way.Hold()
	if err := store.Take(t.Context(), c, &d); err == nil {
		t.Fatal("no error without a reply")
	}
	way.Cut() // the reply is lost
	way.Release()
	store.Report(c, limiter.Permit{ID: [16]byte{1}})
	if !store.Available() {
		t.Error("one failure is taken for an absence")
	}
	s.until("Redis is told", func() bool { return store.Unreported() == 0 })
	s.left(c, 7) // one, the lost reply's, and the one reported
}

// A Redis that hangs is asked whether it is there, and for nothing that it would
// count when it wakes up.
func TestAbsence_CountsNothingTwice(t *testing.T) {
	t.Parallel()
	s, store := absent(t, time.Millisecond)
	c := claim(1000, time.Hour, 1)
	c[0].Limit.Algorithm = limiter.FixedWindow
	s.allowed(c, 1)
	s.server.Signal(syscall.SIGSTOP)
	s.missed(store, c)
	before := time.Now()
	s.until("it is looked for some times", func() bool { return time.Since(before) > time.Second })
	s.server.Signal(syscall.SIGCONT)
	s.until("Redis is told", func() bool { return store.Unreported() == 0 })
	s.until("the absence ends", store.Available)
	var d limiter.Decision
	if err := store.Peek(t.Context(), c, &d); err != nil || d.Outcomes[0].Remaining < 990 || d.Outcomes[0].Remaining > 998 {
		t.Errorf("%v %+v, want about 998 left", err, d.Outcomes)
	}
}

// What a request has cost more while Redis is away counts when it is back, once, before the next decision.
func TestCharge_WhileRedisIsAway(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA} {
		c := claim(100, time.Hour, 10)
		c[0].Limit.Algorithm, c[0].Limit.Name = a, "charged."+a.String()
		p := s.allowed(c, 1).Permit
		s.server.Kill()
		for range 2 {
			c[0].Cost = 30
			if err := s.store.Charge(t.Context(), c, p); err != nil {
				t.Fatalf("%s: %v", a, err)
			}
		}
		s.server.Restart()
		s.quiet()
		c[0].Cost = 1
		want := int64(70) // Redis has no file, and has forgotten what was granted
		if s.left(c, want); s.store.Charge(t.Context(), c, p) != nil {
			t.Errorf("%s: charged again: an error", a)
		}
		s.left(c, want)
	}
}

// Of two nodes each knows what the other has charged.
func TestCharge_OfTwoNodes(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	other := s.other("")
	c := claim(100, time.Hour, 40)
	p := s.allowed(c, 1).Permit
	c[0].Cost = 90
	s.check(other.store.Charge(t.Context(), c, p))
	if err := s.store.Charge(t.Context(), c, p); err != nil { // the same, of a log: it knows the ID
		t.Fatal(err)
	}
	c[0].Cost = 1
	s.deniedByReports(c, time.Hour)
	s.advance(time.Hour)
	s.left(c, 100)

	counter := claim(100, time.Hour, 10)
	counter[0].Limit.Name, counter[0].Limit.Algorithm = "counter", limiter.FixedWindow
	p = s.allowed(counter, 1).Permit
	for _, by := range []*testStore{s, other, s, other} {
		s.check(by.store.Charge(t.Context(), counter, p))
	}
	s.left(counter, 70) // each process once
}
