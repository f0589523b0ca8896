package redisstore_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

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
