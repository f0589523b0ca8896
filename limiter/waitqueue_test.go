package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// asked counts what a Memory is asked.
type asked struct {
	*limiter.Memory
	mu    sync.Mutex
	takes int
}

func (a *asked) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	a.mu.Lock()
	a.takes++
	a.mu.Unlock()
	return a.Memory.Take(ctx, claims, d)
}

// A queueing test has a queue at a limit of 1 permit in 100 ms.
func queueing(t *testing.T, test func(t *testing.T, store *asked, queue *limiter.WaitQueue, claims []limiter.Claim)) {
	synctest.Test(t, func(t *testing.T) {
		store := &asked{Memory: limiter.NewMemory(limiter.MemoryOptions{})}
		claims := []limiter.Claim{{Limit: rate("smooth", 1, 100*time.Millisecond), Key: numbered(1), Cost: 1}}
		test(t, store, limiter.NewWaitQueue(store, time.Second), claims)
	})
}

// upTo waits that long for the one claim of a call, among so many callers.
func upTo(most time.Duration, crowd int) limiter.WaitOptions {
	return limiter.WaitOptions{MaxWait: []time.Duration{most}, MaxWaiting: crowd}
}

// Who came first is served first, each as soon as there is a permit, and only one
// of them asks.
func TestLine_FirstComeFirstServed(t *testing.T) {
	queueing(t, func(t *testing.T, store *asked, queue *limiter.WaitQueue, claims []limiter.Claim) {
		start := time.Now()
		type served struct {
			who int
			at  time.Duration
		}
		order := make(chan served, 10)
		for who := range 10 {
			go func() {
				var d limiter.Decision
				if err := queue.Wait(t.Context(), claims, &d, upTo(2*time.Second, 100)); err != nil || !d.Allowed {
					t.Errorf("%d: %+v %v", who, d, err)
				}
				order <- served{who, time.Since(start)}
			}()
			synctest.Wait()
		}
		for who := range 10 {
			if got, want := <-order, (served{who, time.Duration(who) * 100 * time.Millisecond}); got != want {
				t.Errorf("served %+v, want %+v", got, want)
			}
		}
		if store.takes > 20 {
			t.Errorf("the store was asked %d times for 10 callers", store.takes)
		}
	})
}

// Waiting that cannot help is not begun.
func TestLine_ReturnsAtOnce(t *testing.T) {
	queueing(t, func(t *testing.T, _ *asked, queue *limiter.WaitQueue, claims []limiter.Claim) {
		var d limiter.Decision
		take(t, shortQueue{queue, 0}, claims...)
		start := time.Now()
		for _, most := range []time.Duration{0, 99 * time.Millisecond} {
			if err := queue.Wait(t.Context(), claims, &d, upTo(most, 100)); err != nil || d.Allowed || d.Wait != 100*time.Millisecond {
				t.Errorf("%v: %+v %v", most, d, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := queue.Wait(ctx, claims, &d, upTo(time.Hour, 100)); err != nil || d.Allowed {
			t.Errorf("a deadline before the permit: %+v %v", d, err)
		}
		go queue.Wait(t.Context(), claims, new(limiter.Decision), upTo(time.Second, 100))
		synctest.Wait()
		if err := queue.Wait(t.Context(), claims, &d, upTo(50*time.Millisecond, 100)); err != nil || d.Allowed {
			t.Errorf("behind one who waits longer: %+v %v", d, err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

// shortQueue is a WaitQueue as a Store that waits so long.
type shortQueue struct {
	*limiter.WaitQueue
	most time.Duration
}

func (s shortQueue) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.WaitQueue.Wait(ctx, claims, d, limiter.WaitOptions{MaxWait: slices.Repeat([]time.Duration{s.most}, len(claims)), MaxWaiting: 100})
}
func (s shortQueue) Peek(context.Context, []limiter.Claim, *limiter.Decision) error { return nil }
func (s shortQueue) Refund(context.Context, []limiter.Claim, limiter.Permit) error  { return nil }

// No more wait than may, other keys are not held up.
func TestLine_IsBounded(t *testing.T) {
	queueing(t, func(t *testing.T, _ *asked, queue *limiter.WaitQueue, claims []limiter.Claim) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { queue.Wait(t.Context(), claims, new(limiter.Decision), upTo(time.Second, 3)) })
			synctest.Wait()
		}
		var d limiter.Decision
		if err := queue.Wait(t.Context(), claims, &d, upTo(time.Second, 3)); !errors.Is(err, limiter.ErrQueueFull) {
			t.Errorf("a fourth: %v", err)
		}
		other := slices.Clone(claims)
		other[0].Key = numbered(2)
		if err := queue.Wait(t.Context(), other, &d, upTo(0, 3)); err != nil || !d.Allowed {
			t.Errorf("another key: %+v %v", d, err)
		}
		wg.Wait()
	})
}

// Who leaves takes nothing, wherever in the queue, and the next moves up.
func TestLine_LeavingTakesNothing(t *testing.T) {
	queueing(t, func(t *testing.T, store *asked, queue *limiter.WaitQueue, claims []limiter.Claim) {
		take(t, store, claims...)
		var wg sync.WaitGroup
		cancels := make([]context.CancelFunc, 5)
		passed := make([]time.Duration, 5)
		start := time.Now()
		for i := range cancels {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			wg.Go(func() {
				var d limiter.Decision
				err := queue.Wait(ctx, claims, &d, upTo(time.Minute, 100))
				if err == nil && d.Allowed {
					passed[i] = time.Since(start)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("%d: %+v %v", i, d, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(50 * time.Millisecond)
		cancels[0]() // the first
		cancels[2]() // in the middle
		wg.Wait()
		want := []time.Duration{0, 100 * time.Millisecond, 0, 200 * time.Millisecond, 300 * time.Millisecond}
		if !slices.Equal(passed, want) {
			t.Errorf("passed at %v, want %v", passed, want)
		}
		for _, cancel := range cancels {
			cancel()
		}
	})
}

// slow is a store whose answer takes a while.
type slow struct{ *limiter.Memory }

func (s slow) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	err := s.Memory.Take(ctx, claims, d)
	time.Sleep(20 * time.Millisecond)
	return err
}

// Who leaves while the store answers gives back what it was granted.
func TestLine_GivesBackWhatCameTooLate(t *testing.T) {
	queueing(t, func(t *testing.T, store *asked, _ *limiter.WaitQueue, claims []limiter.Claim) {
		queue := limiter.NewWaitQueue(slow{store.Memory}, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var d limiter.Decision
		if err := queue.Wait(ctx, claims, &d, upTo(time.Minute, 100)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("left: %v", err)
		}
		if !take(t, store, claims...).Allowed {
			t.Error("the permit of one who left is gone")
		}
	})
}

// left is a store that notices only that its caller has left, as one over a network does.
type left struct {
	*limiter.Memory
	leave context.CancelFunc
}

func (l left) Peek(ctx context.Context, _ []limiter.Claim, _ *limiter.Decision) error {
	l.leave()
	<-ctx.Done()
	return fmt.Errorf("%w: %w", limiter.ErrUnavailable, context.Cause(ctx))
}

// Who leaves is not taken for a failure of the store, of which a caller may let requests pass.
func TestLine_LeavingIsNoFailureOfTheStore(t *testing.T) {
	queueing(t, func(t *testing.T, store *asked, _ *limiter.WaitQueue, claims []limiter.Claim) {
		ctx, leave := context.WithCancel(t.Context())
		queue := limiter.NewWaitQueue(left{store.Memory, leave}, time.Second)
		take(t, store, claims...)
		go queue.Wait(t.Context(), claims, new(limiter.Decision), upTo(time.Minute, 100))
		synctest.Wait()
		err := queue.Wait(ctx, claims, new(limiter.Decision), upTo(time.Millisecond, 100)) // the first one waits longer
		if !errors.Is(err, context.Canceled) || errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("left: %v; want that it has left", err)
		}
	})
}

// A claim that is not waited for is refused at once, whatever the others would
// wait, and each is waited for no longer than is said of it.
func TestLine_WaitsForEachClaimByItself(t *testing.T) {
	queueing(t, func(t *testing.T, _ *asked, queue *limiter.WaitQueue, claims []limiter.Claim) {
		both := append(slices.Clone(claims), limiter.Claim{Limit: rate("day", 1, 150*time.Millisecond), Key: numbered(1), Cost: 1})
		began := 0
		ask := func(d *limiter.Decision, most ...time.Duration) time.Duration {
			start := time.Now()
			if err := queue.Wait(t.Context(), both, d, limiter.WaitOptions{MaxWait: most, MaxWaiting: 9, OnWait: func() { began++ }}); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		var d limiter.Decision
		if took := ask(&d, time.Second, time.Second); took != 0 || !d.Allowed || began != 0 {
			t.Errorf("the first: %v, %+v, waiting began %d times", took, d, began)
		}
		for _, most := range [][]time.Duration{{time.Second}, {time.Second, 149 * time.Millisecond}, {99 * time.Millisecond, time.Second}, {0, time.Millisecond}, nil} {
			if took := ask(&d, most...); took != 0 || d.Allowed || d.Wait != 150*time.Millisecond || began != 0 {
				t.Errorf("%v: %v, %+v, waiting began %d times; want a refusal at once", most, took, d, began)
			}
		}
		if took := ask(&d, 100*time.Millisecond, 150*time.Millisecond); took != 150*time.Millisecond || !d.Allowed || began != 1 {
			t.Errorf("both may be waited for: %v, %+v, waiting began %d times", took, d, began)
		}
	})
}

// What comes free while somebody is in queue is not granted to one whose time is
// over, and a crowd is refused without asking.
func TestLine_RefusalsTakeNothing(t *testing.T) {
	queueing(t, func(t *testing.T, store *asked, _ *limiter.WaitQueue, claims []limiter.Claim) {
		take(t, store, claims...)
		queue := limiter.NewWaitQueue(slow{store.Memory}, time.Second)
		go queue.Wait(t.Context(), claims, new(limiter.Decision), upTo(time.Second, 2)) // asks at 0, and from 120 to 140 ms
		synctest.Wait()
		time.Sleep(10 * time.Millisecond) // the first does not know yet how long it waits; at 108 ms a permit is free, until it takes it at 120
		go func() {
			var d limiter.Decision
			if err := queue.Wait(t.Context(), claims, &d, upTo(98*time.Millisecond, 2)); err != nil || d.Allowed || d.Wait <= 0 {
				t.Errorf("behind one that is first: %+v %v; want a refusal", d, err)
			}
		}()
		synctest.Wait()
		asked := store.takes
		var d limiter.Decision
		if err := queue.Wait(t.Context(), claims, &d, upTo(time.Second, 2)); !errors.Is(err, limiter.ErrQueueFull) || d.Allowed || d.Wait != time.Second || len(d.Outcomes) != 1 || store.takes != asked {
			t.Errorf("a third of two: %+v %v; want a refusal without a question", d, err)
		}
		time.Sleep(time.Second)
	})
}

// A Waiter waits in steps by a clock that need not be that of the machine.
func TestWaiter_WaitsByAnyClock(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return at }
	queue := limiter.NewWaitQueue(limiter.NewMemory(limiter.MemoryOptions{Clock: clock}), time.Second)
	claims := []limiter.Claim{{Limit: rate("smooth", 1, 100*time.Millisecond), Key: numbered(1), Cost: 1}}
	became := 0
	step := func(w *limiter.Waiter, want time.Duration) (allowed bool) {
		t.Helper()
		var d limiter.Decision
		again, err := w.Step(t.Context(), clock, &d)
		if err != nil || want > 0 && again.Sub(at) != want || want == 0 && !again.IsZero() {
			t.Errorf("again after %v, %v; want %v", again.Sub(at), err, want)
		}
		return d.Allowed
	}
	waiter := func(most time.Duration) *limiter.Waiter {
		return queue.NewWaiter(claims, upTo(most, 3), func() { became++ })
	}
	first, head, second, third := waiter(time.Second), waiter(time.Second), waiter(150*time.Millisecond), waiter(150*time.Millisecond)
	if !step(first, 0) {
		t.Error("the first is refused")
	}
	first.Leave()
	if step(head, 100*time.Millisecond) || step(second, 150*time.Millisecond) || step(third, 150*time.Millisecond) {
		t.Error("one passes that has to wait")
	}
	full := waiter(time.Second)
	if _, err := full.Step(t.Context(), clock, new(limiter.Decision)); !errors.Is(err, limiter.ErrQueueFull) {
		t.Errorf("a fourth of three: %v", err)
	}
	full.Leave()
	at = at.Add(100 * time.Millisecond)
	if !step(head, 0) {
		t.Error("the head is refused when there is a permit")
	}
	if head.Leave(); became != 1 || step(second, 0) { // the next permit comes after its time
		t.Errorf("%d have become the head; want the second, refused", became)
	}
	second.Leave()
	at = at.Add(50 * time.Millisecond)
	if became != 2 || step(third, 0) {
		t.Errorf("%d have become the head; want the third, refused", became)
	}
	third.Leave()
}
