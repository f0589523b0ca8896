package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/test/rounds"
)

// A virtualLock is a kind without Redis: it says what it is told to say and writes
// down what it was asked, for tests on virtual time.
type virtualLock struct {
	mu      sync.Mutex
	refuse  bool
	fail    error
	delay   time.Duration
	extends []time.Time
	counts  []int
}

func (v *virtualLock) answer(ctx context.Context) (bool, error) {
	v.mu.Lock()
	delay, held, err := v.delay, !v.refuse, v.fail
	v.mu.Unlock()
	sleep[struct{}](ctx, nil, delay)
	if err == nil {
		err = ctx.Err()
	}
	return held && err == nil, err
}

func (v *virtualLock) attempt(ctx context.Context, _ callParams) (attemptResult, error) {
	held, err := v.answer(ctx)
	return attemptResult{held: held, token: 7}, err
}

func (v *virtualLock) extend(ctx context.Context, _ callParams) (bool, error) {
	v.mu.Lock()
	v.extends = append(v.extends, time.Now())
	v.mu.Unlock()
	return v.answer(ctx)
}

func (v *virtualLock) release(ctx context.Context, c callParams) (releaseResult, error) {
	v.mu.Lock()
	v.counts = append(v.counts, c.count)
	v.mu.Unlock()
	held, err := v.answer(ctx)
	return releaseResult{held: held}, err
}

func (v *virtualLock) say(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

func (v *virtualLock) seen() []time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.extends)
}

func (v *virtualLock) renewals() int { return len(v.seen()) }

// virtual runs f with a Locker without Redis, on virtual time.
func virtual(t *testing.T, f func(t *testing.T, b *virtualLock, lk *Lock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := New(nil)
		defer l.Close()
		b := new(virtualLock)
		f(t, b, l.newLock("a", b, traits{exclusive: true, reentrant: true}))
	})
}

func TestSession_RenewsEveryThirdOfTheLease(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		start := time.Now()
		h := locked(t, lk)
		<-time.After(35 * time.Second)
		for i, at := range b.seen() {
			if got, want := at.Sub(start), time.Duration(i+1)*10*time.Second; got != want {
				t.Errorf("renewal %d after %v, want %v", i, got, want)
			}
		}
		if got := b.renewals(); got != 3 {
			t.Errorf("%d renewals in 35 s, want 3", got)
		}
		unlocked(t, h)
		<-time.After(time.Hour)
		if b.renewals() != 3 {
			t.Error("renewed after Unlock")
		}
	})
}

func TestSession_DeadlineCountsFromBeforeTheSend(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		b.delay = 2 * time.Second
		sent := time.Now()
		h := locked(t, lk)
		if got, want := h.Deadline().Sub(sent), 30*time.Second-300*time.Millisecond-2*time.Millisecond; got != want {
			t.Errorf("deadline %v after the send, want %v", got, want)
		}
		<-time.After(9 * time.Second) // renewed 10 s after the send, answered 2 s later
		sent = sent.Add(10 * time.Second)
		<-time.After(2 * time.Second)
		if got, want := h.Deadline().Sub(sent), 30*time.Second-300*time.Millisecond-2*time.Millisecond; got != want {
			t.Errorf("deadline %v after the renewal, want %v", got, want)
		}
		unlocked(t, h)
	})
}

func TestSession_WithoutAnswersEndsAtTheDeadline(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		sent := time.Now()
		h := locked(t, lk)
		b.say(func() { b.fail = errors.New("no answer") })
		<-h.Context().Done()
		if got, want := time.Since(sent), 30*time.Second-302*time.Millisecond; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
		if got := context.Cause(h.Context()); got != ErrLost {
			t.Errorf("cause = %v, want ErrLost", got)
		}
		if got := b.renewals(); got < 15 || got > 25 {
			t.Errorf("%d renewals were tried in the last 20 s, want about one a second", got)
		}
		wantErr(t, h.Unlock(t.Context()), ErrLost)
	})
}

func TestSession_RidesOutAnOutageShorterThanTheLease(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		b.say(func() { b.fail = errors.New("no answer") })
		<-time.After(25 * time.Second)
		b.say(func() { b.fail = nil })
		<-time.After(time.Minute)
		if err := h.Context().Err(); err != nil {
			t.Errorf("lost: %v", context.Cause(h.Context()))
		}
		unlocked(t, h)
	})
}

func TestSession_RefusedRenewalEndsItAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		b.say(func() { b.refuse = true })
		<-time.After(10*time.Second + time.Nanosecond)
		wantErr(t, context.Cause(h.Context()), ErrLost)
	})
}

func TestSession_NoRenewalIsUnderWayWhenUnlockIsSent(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		b.say(func() { b.delay = time.Second })
		<-time.After(10*time.Second + 1) // the renewal is being answered
		start := time.Now()
		unlocked(t, h)
		if got := time.Since(start); got < 2*time.Second-2 {
			t.Errorf("Unlock took %v: it did not wait for the renewal", got)
		}
	})
}

func TestSession_ContextSeesTheDeadlineWithoutATimer(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		h.session.mu.Lock()
		h.session.expiryTimer.Stop() // as if the process were stopped
		h.session.renewTimer.Stop()
		h.session.mu.Unlock()
		<-time.After(time.Minute)
		if err := h.Context().Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("Err = %v, want Canceled", err)
		}
		wantErr(t, context.Cause(h.Context()), ErrLost)
	})
}

func TestSession_GrantAfterItsLeaseIsGivenBack(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		b.delay = 2 * time.Second
		_, err := lk.TryLock(t.Context(), WithLease(time.Second))
		wantErr(t, err, ErrNotAcquired)
		<-time.After(3 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.counts) == 0 {
			t.Error("nothing was given back")
		}
	})
}

func TestSession_ContextKeepsValuesOnly(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Second)
		defer cancel()
		h, err := lk.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		if _, has := h.Context().Deadline(); has || h.Context().Err() != nil || h.Context().Value(key{}) != "v" {
			t.Error("the hold's context has the deadline, or not the values, of the caller's")
		}
		unlocked(t, h)
	})
}

func TestUnlock_TakesTwoCallTimeoutsAtMost(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		b.say(func() { b.delay = time.Hour })
		start := time.Now()
		if err := h.Unlock(t.Context()); err == nil || errors.Is(err, ErrLost) {
			t.Errorf("Unlock = %v, want the call's error", err)
		}
		if got := time.Since(start); got != 6*time.Second {
			t.Errorf("Unlock took %v, want 6s", got)
		}
	})
}

func TestUnlock_LetsANeighbourInAlthoughRedisHangs(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		b.say(func() { b.delay = time.Hour })
		for range 3 { // each of them waits for its turn
			go h.Extend(t.Context(), time.Minute)
		}
		synctest.Wait()
		if err := h.Unlock(t.Context()); err == nil {
			t.Error("Unlock succeeded without an answer")
		}
		b.say(func() { b.delay = 0 })
		unlocked(t, locked(t, lk))
	})
}

// The lost call may be executed after the first undo.
func TestUndo_GoesOnUntilItFindsSomething(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		released := func(want int) {
			t.Helper()
			b.mu.Lock()
			defer b.mu.Unlock()
			if len(b.counts) != want {
				t.Errorf("%d calls to give back, want %d", len(b.counts), want)
			}
		}
		b.fail = errors.New("no answer")
		if _, err := lk.TryLock(t.Context()); err == nil {
			t.Fatal("TryLock succeeded without an answer")
		}
		b.say(func() { b.fail, b.refuse = nil, true })
		<-time.After(100 * time.Millisecond)
		released(2) // at once and after 50 ms: nothing there
		b.say(func() { b.refuse = false })
		<-time.After(time.Minute)
		released(3) // after another 200 ms
	})
}

func TestSession_ARenewalNeverShortensWhatExtendGave(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		h := locked(t, lk)
		wantErr(t, h.Extend(t.Context(), 10*time.Minute), nil)
		before := h.Deadline()
		<-time.After(25 * time.Second) // renewed twice
		if b.renewals() < 3 || !h.Deadline().Equal(before) {
			t.Errorf("deadline %v, want %v as Extend left it", h.Deadline(), before)
		}
		unlocked(t, h)
	})
}

// Reentering through a hold that is unlocked at any moment meanwhile leaves no hold that nobody can unlock.
func TestSession_ReenterBesideAnUnlock(t *testing.T) {
	virtual(t, func(t *testing.T, _ *virtualLock, lk *Lock) {
		for i := range rounds.Of(5_000) {
			h := locked(t, lk)
			spins := rand.IntN(2000)
			var all sync.WaitGroup
			all.Go(func() {
				for range spins {
					_ = h.Owner()
				}
				unlocked(t, h)
			})
			next, err := h.Reenter(t.Context())
			all.Wait()
			if (next == nil) != errors.Is(err, ErrNotHeld) {
				t.Fatalf("round %d: %v, %v; want a hold or ErrNotHeld", i, next, err)
			}
			if next != nil {
				unlocked(t, next)
			}
			if n := len(lk.locker.sessions); n > 0 {
				t.Fatalf("round %d: %d sessions are held after all was unlocked", i, n)
			}
		}
	})
}
