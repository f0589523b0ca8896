package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/redistest"
)

const patient = 10 * time.Second

// grounded is a store whose lane sends nothing until its test lets it.
func grounded(t *testing.T, addr string) *Store {
	t.Helper()
	client, err := NewClient(ClientConfig{Addrs: []string{addr}, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	s := NewWithTestClock(client, Options{Timeout: patient, MaxInFlight: 1})
	t.Cleanup(func() { s.Close(); client.Close() })
	s.batchers.of(t.Context(), limiter.Claim{Limit: bucketOf("l", 1)}).inFlight = 1
	return s
}

// lane is the only one of a store on a single Redis.
func (s *Store) lane() *batcher { return s.batchers.byNode[track{}] }

func bucketOf(name string, count int64) *limiter.Limit {
	return &limiter.Limit{Name: name, Rate: limiter.Rate{Count: count, Window: 10 * time.Second}}
}

// Whatever travels together is decided as if it had come one by one: same
// answers, same state.
func TestLane_DecidesAsOneByOne(t *testing.T) {
	server := redistest.Start(t)
	many := grounded(t, server.Addr)
	single := NewWithTestClock(many.client, Options{Timeout: patient, Prefix: "single"})
	clock := int64(1_800_000_000_000)
	rng := rand.New(rand.NewPCG(1, 2))
	limits := []*limiter.Limit{bucketOf("one", 3), bucketOf("two", 40), bucketOf("three", 300)}
	for a := limiter.FixedWindow; a <= limiter.Concurrent; a++ {
		l := bucketOf(a.String(), 20)
		l.Algorithm = a
		limits = append(limits, l)
	}
	for round := range 40 {
		clock += rng.Int64N(3000)
		many.client.Set(t.Context(), TestClock, clock, 0)
		var calls []*call
		for range 1 + rng.IntN(60) {
			var claims []limiter.Claim
			for _, l := range limits {
				if rng.IntN(3) == 0 {
					claims = append(claims, limiter.Claim{Limit: l, Key: limiter.KeyOf(fmt.Sprint(rng.IntN(3))), Cost: 1 + rng.Int64N(3)})
				}
			}
			if len(claims) > 0 {
				calls = append(calls, newCall(claims, newID()))
			}
		}
		for _, c := range calls {
			if _, err := many.lane().join(c); err != nil {
				t.Fatal(err)
			}
		}
		for f := many.lane().fill(); f != nil; f = many.lane().fill() {
			f.send(t.Context())
		}
		many.lane().inFlight = 1
		for i, c := range calls {
			<-c.done
			var want limiter.Decision
			if c.err != nil {
				t.Fatal(c.err)
			}
			if err := single.Take(t.Context(), c.claims, &want); err != nil {
				t.Fatal(err)
			}
			if c.decision.Allowed != want.Allowed || c.decision.Wait != want.Wait || !slices.Equal(c.decision.Outcomes, want.Outcomes) {
				t.Fatalf("round %d call %d of %d: together %+v, one by one %+v", round, i, len(calls), c.decision, want)
			}
		}
	}
}

// Requests that ask for the same window by different rates do not travel
// together, and come in order all the same.
func TestLane_KeepsRatesApart(t *testing.T) {
	server := redistest.Start(t)
	s := grounded(t, server.Addr)
	s.client.Set(t.Context(), TestClock, int64(1_800_000_000_000), 0)
	var calls []*call
	for _, count := range []int64{5, 5, 9, 5} {
		c := newCall([]limiter.Claim{{Limit: bucketOf("l", count), Cost: 1}}, newID())
		calls = append(calls, c)
		if _, err := s.lane().join(c); err != nil {
			t.Fatal(err)
		}
	}
	flights := 0
	for f := s.lane().fill(); f != nil; f = s.lane().fill() {
		flights++
		f.send(t.Context())
	}
	for i, left := range []int64{4, 3, 6, 1} {
		if got := calls[i].decision.Outcomes[0].Remaining; got != left {
			t.Errorf("call %d: %d left, want %d", i, got, left)
		}
	}
	if flights != 3 {
		t.Errorf("%d flights, want 3", flights)
	}
}

// A caller that leaves before its request was sent takes nothing.
func TestLane_LeavesNothingBehind(t *testing.T) {
	server := redistest.Start(t)
	s := grounded(t, server.Addr)
	s.client.Set(t.Context(), TestClock, int64(1_800_000_000_000), 0)
	claims := []limiter.Claim{{Limit: bucketOf("l", 5), Cost: 1}}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		var d limiter.Decision
		gone <- s.Take(ctx, claims, &d)
	}()
	for waits := 0; waits == 0; {
		s.lane().mu.Lock()
		waits = len(s.lane().queue)
		s.lane().mu.Unlock()
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("left: %v", err)
	}
	for f := s.lane().fill(); f != nil; f = s.lane().fill() {
		f.send(t.Context())
	}
	var d limiter.Decision
	if err := s.Peek(t.Context(), claims, &d); err != nil || d.Outcomes[0].Remaining != 5 {
		t.Errorf("%+v %v, want 5 left", d, err)
	}
}

// The queue is bounded, and closing lets nobody in.
func TestLane_Bounds(t *testing.T) {
	server := redistest.Start(t)
	s := grounded(t, server.Addr)
	claims := []limiter.Claim{{Limit: bucketOf("l", 5), Cost: 1}}
	for range maxQueue {
		if _, err := s.lane().join(newCall(claims, newID())); err != nil {
			t.Fatal(err)
		}
	}
	var d limiter.Decision
	if err := s.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrUnavailable) || !errors.Is(err, errBusy) {
		t.Errorf("a full queue: %v", err)
	}
	s.lane().queue, s.lane().inFlight = nil, 0
	s.Close()
	if err := s.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrUnavailable) || !errors.Is(err, redis.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// While Redis hangs every caller leaves in time, and afterwards all goes on.
func TestLane_CallersLeaveInTime(t *testing.T) {
	server := redistest.Start(t)
	client, err := NewClient(ClientConfig{Addrs: []string{server.Addr}, Timeout: 100 * time.Millisecond, BreakAfter: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s := New(client, Options{Timeout: 100 * time.Millisecond, Denials: -1})
	defer s.Close()
	claims := []limiter.Claim{{Limit: bucketOf("l", 1_000_000), Cost: 1}}
	var d limiter.Decision
	if err := s.Take(t.Context(), claims, &d); err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGSTOP)
	const callers = 200
	took := make(chan time.Duration, callers)
	for range callers {
		go func() {
			var d limiter.Decision
			start := time.Now()
			if err := s.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("hung: %v", err)
			}
			took <- time.Since(start)
		}()
	}
	for range callers {
		if d := <-took; d > 2*time.Second {
			t.Errorf("a caller waited %v", d)
		}
	}
	server.Signal(syscall.SIGCONT)
	deadline := time.Now().Add(patient)
	for s.Take(t.Context(), claims, &d) != nil {
		if time.Now().After(deadline) {
			t.Fatal("no answer afterwards")
		}
	}
}

// What a hot key grants in one call is one entry; still each is given back by its
// id, once.
func TestLane_HotKeysGiveBack(t *testing.T) {
	server := redistest.Start(t)
	s := grounded(t, server.Addr)
	s.client.Set(t.Context(), TestClock, int64(1_800_000_000_000), 0)
	claims := []limiter.Claim{{Limit: bucketOf("hot", 1000), Cost: 2}}
	var calls []*call
	for range 3 {
		for range 40 {
			c := newCall(claims, newID())
			calls = append(calls, c)
			if _, err := s.lane().join(c); err != nil {
				t.Fatal(err)
			}
		}
		f := s.lane().fill()
		f.send(t.Context())
	}
	if n := s.client.ZCard(t.Context(), WindowName("weir", "hot", claims[0].Key)+":permits").Val(); n != 3 {
		t.Errorf("%d entries for 3 calls", n)
	}
	left := func(want int64) {
		t.Helper()
		var d limiter.Decision
		if err := s.Peek(t.Context(), claims, &d); err != nil || d.Outcomes[0].Remaining != want {
			t.Fatalf("%+v %v, want %d left", d, err, want)
		}
	}
	left(1000 - 240)
	for i, c := range calls[:30] {
		for range 2 {
			if err := s.Refund(t.Context(), claims, limiter.Permit{ID: c.id, At: c.decision.At}); err != nil {
				t.Fatal(err)
			}
			left(1000 - 240 + 2*int64(i+1))
		}
	}
}

// A call that Redis runs twice, as when something on the way repeats it, costs at
// most its permits once more, for one window, and never longer.
func TestStore_SameCallTwice(t *testing.T) {
	server := redistest.Start(t)
	s := grounded(t, server.Addr)
	for _, count := range []int64{10, 100, 1000} {
		clock := int64(1_800_000_000_000)
		s.client.Set(t.Context(), TestClock, clock, 0)
		claims := []limiter.Claim{{Limit: bucketOf(fmt.Sprint("twice", count), count), Cost: 3}}
		left := func(least, most int64) {
			t.Helper()
			var d limiter.Decision
			if err := s.Peek(t.Context(), claims, &d); err != nil || d.Outcomes[0].Remaining < least || d.Outcomes[0].Remaining > most {
				t.Fatalf("%+v %v, want %d to %d left", d, err, least, most)
			}
		}
		for range min(count/3-2, 25) { // enough entries for a base, where there may be
			f := newBatch(s)
			f.takes(newCall(claims, newID()))
			f.send(t.Context())
		}
		before := count - 3*min(count/3-2, 25)
		left(before, before)
		id := newID()
		for range 2 {
			f := newBatch(s)
			f.takes(newCall(claims, id))
			f.send(t.Context())
		}
		left(before-6, before-3)
		s.client.Set(t.Context(), TestClock, clock+10_000, 0)
		left(count, count)
	}
}
