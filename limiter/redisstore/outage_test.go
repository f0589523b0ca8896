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

// Keys of another type are an error, not a panic and not a grant.
func TestStore_ForeignTypes(t *testing.T) {
	s := newTestStore(t)
	c := claim(10, time.Minute, 1)
	s.do("set", name(c)+":permits", "no set")
	var d limiter.Decision
	if err := s.store.Take(t.Context(), c, &d); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("take: %v", err)
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
