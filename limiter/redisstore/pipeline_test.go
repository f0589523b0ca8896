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

const patient = 30 * time.Second

// grounded is a store on a Redis of its own, whose clock stands, and whose pipeline sends nothing until its test lets it.
func grounded(t *testing.T) *Store {
	t.Helper()
	client, err := NewClient(ClientConfig{Addrs: []string{redistest.Start(t).Addr}, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	client.Set(t.Context(), TestClock, int64(1_800_000_000_000), 0)
	s := NewWithTestClock(client, Options{Timeout: patient})
	p := s.only(t)
	p.queue.startWriter = func() {}
	t.Cleanup(func() {
		p.queue.close()
		p.write()
		s.Close()
		client.Close()
	})
	return s
}

// only is the pipeline of a store on a single Redis.
func (s *Store) only(t *testing.T) *pipeline {
	t.Helper()
	p, err := s.pipelines.forClaim(t.Context(), &limiter.Claim{Limit: bucketOf("l", 1)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// join has calls wait.
func (s *Store) join(t *testing.T, calls ...*call) {
	t.Helper()
	for _, c := range calls {
		if err := s.only(t).queue.enqueue(c); err != nil {
			t.Fatal(err)
		}
	}
}

// fly sends what waits and returns in how many batches.
func (s *Store) fly(t *testing.T) (batches int) {
	t.Helper()
	p := s.only(t)
	for ; len(p.queue.waiting) > 0; batches++ {
		c, err := p.connection()
		if err != nil {
			t.Fatal(err)
		}
		p.send(c)
	}
	return batches
}

// takeOnce takes c and waits for the answer.
func (s *Store) takeOnce(t *testing.T, c *call) {
	t.Helper()
	s.join(t, c)
	s.fly(t)
	<-c.done
}

func bucketOf(name string, count int64) *limiter.Limit {
	return &limiter.Limit{Name: name, Rate: limiter.Rate{Count: count, Window: 10 * time.Second}}
}

// Whatever travels together is decided as if it had come one by one: same
// answers, same state.
func TestPipeline_DecidesAsOneByOne(t *testing.T) {
	t.Parallel()
	many := grounded(t)
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
				calls = append(calls, many.newCall(claims, newID()))
			}
		}
		many.join(t, calls...)
		many.fly(t)
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
func TestPipeline_KeepsRatesApart(t *testing.T) {
	s := grounded(t)
	var calls []*call
	batches := 0
	for _, name := range []string{"first", "l"} { // a script that Redis does not know yet goes by itself
		calls = nil
		for _, count := range []int64{5, 5, 9, 5} {
			calls = append(calls, s.newCall([]limiter.Claim{{Limit: bucketOf(name, count), Cost: 1}}, newID()))
		}
		s.join(t, calls...)
		batches = s.fly(t)
		for _, c := range calls {
			<-c.done
		}
	}
	for i, left := range []int64{4, 3, 6, 1} {
		if got := calls[i].decision.Outcomes[0].Remaining; got != left {
			t.Errorf("call %d: %d left, want %d", i, got, left)
		}
	}
	if batches != 3 {
		t.Errorf("%d batches, want 3", batches)
	}
}

// A caller that leaves before its request was sent takes nothing.
func TestPipeline_LeavesNothingBehind(t *testing.T) {
	s := grounded(t)
	claims := []limiter.Claim{{Limit: bucketOf("l", 5), Cost: 1}}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		var d limiter.Decision
		gone <- s.Take(ctx, claims, &d)
	}()
	eventually(t, "the call waits", s.only(t).is(func(q *queue) bool { return len(q.waiting) > 0 }))
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) || !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("left: %v", err)
	}
	s.fly(t)
	var d limiter.Decision
	if err := s.Peek(t.Context(), claims, &d); err != nil || d.Outcomes[0].Remaining != 5 {
		t.Errorf("%+v %v, want 5 left", d, err)
	}
}

// The queue is bounded, and closing lets nobody in.
func TestPipeline_Bounds(t *testing.T) {
	s := grounded(t)
	claims := []limiter.Claim{{Limit: bucketOf("l", 5), Cost: 1}}
	for range maxQueue {
		s.join(t, s.newCall(claims, newID()))
	}
	var d limiter.Decision
	if err := s.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrUnavailable) || !errors.Is(err, errBusy) {
		t.Errorf("a full queue: %v", err)
	}
	for p := s.only(t); len(p.queue.waiting) > 0; {
		p.failWaiting(errBusy)
	}
	s.Close()
	if err := s.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrUnavailable) || !errors.Is(err, redis.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// While Redis hangs every caller leaves in time, and afterwards all goes on.
func TestPipeline_CallersLeaveInTime(t *testing.T) {
	server := redistest.Start(t)
	s := storeAt(t, server.Addr, Options{Timeout: 100 * time.Millisecond}, ClientConfig{Timeout: 100 * time.Millisecond, BreakAfter: 1000})
	claims := []limiter.Claim{{Limit: bucketOf("l", 1_000_000), Cost: 1}}
	var d limiter.Decision
	eventually(t, "a connection stands", func() bool { return s.Take(t.Context(), claims, &d) == nil })
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
		if d := <-took; d > patient {
			t.Errorf("a caller waited %v", d)
		}
	}
	server.Signal(syscall.SIGCONT)
	eventually(t, "an answer afterwards", func() bool { return s.Take(t.Context(), claims, &d) == nil })
}

// What a hot key grants in one call is one entry; still each is given back by its
// id, once.
func TestPipeline_HotKeysGiveBack(t *testing.T) {
	t.Parallel()
	s := grounded(t)
	claims := []limiter.Claim{{Limit: bucketOf("hot", 1000), Cost: 2}}
	var calls []*call
	for range 3 {
		for range 40 {
			c := s.newCall(claims, newID())
			calls = append(calls, c)
			s.join(t, c)
		}
		if n := s.fly(t); n != 1 {
			t.Fatalf("%d batches for 40 calls", n)
		}
	}
	for _, c := range calls {
		<-c.done
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
			wait := s.StartRefund(claims, limiter.Permit{ID: c.id, At: c.decision.At})
			s.fly(t)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			left(1000 - 240 + 2*int64(i+1))
		}
	}
}

// A call that Redis runs twice, as when something on the way repeats it, costs at
// most its permits once more, for one window, and never longer.
func TestStore_SameCallTwice(t *testing.T) {
	t.Parallel()
	s := grounded(t)
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
			s.takeOnce(t, s.newCall(claims, newID()))
		}
		before := count - 3*min(count/3-2, 25)
		left(before, before)
		id := newID()
		for range 2 {
			s.takeOnce(t, s.newCall(claims, id))
		}
		left(before-6, before-3)
		s.client.Set(t.Context(), TestClock, clock+10_000, 0)
		left(count, count)
	}
}

// What servers say of keys that are not here, and of flags that they do not know.
func TestPipeline_CrossSlotErrors(t *testing.T) {
	for text, here := range map[string]bool{
		"ERR Script attempted to access a non local key in a cluster node script: 4e96, on @user_script:2.": true, // Redis 7.0
		"ERR Attempted to access a non local key in a cluster node script: on @user_script:2.":              true, // Valkey 9.1
		"READONLY You can't write against a read only replica. script: 4e96, on @user_script:2.":            true,
		"ERR Unexpected flag in script shebang: allow-cross-slot-keys":                                      false,
		"ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'":              false, // Redis 6.2
	} {
		p := pipeline{}
		p.crossSlot.Store(true)
		if err := p.crossSlotError(replyError(text)); !errors.Is(err, errSeveralCalls) || p.crossSlot.Load() != here {
			t.Errorf("%s: %v, scripts for several slots %v, want %v", text, err, p.crossSlot.Load(), here)
		}
	}
}
