package lock

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// behind makes a Locker whose replies pass through a proxy. Its connections are
// open before anything is spoilt.
func (t *testServer) behind(settings ...LockerOption) (*Locker, *redistest.FaultProxy) {
	t.t.Helper()
	p := redistest.NewFaultProxy(t.t, t.server.Addr)
	l := t.lockerAt(p.Addr, settings...)
	unlocked(t.t, locked(t.t, l.Reentrant("warm")))
	return l, p
}

func TestLostReply_OfALockIsUndone(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind()
	before := w.calls()
	p.Lose("evalsha")
	_, err := l.Reentrant("a").TryLock(ctxOf(t))
	if err == nil || errors.Is(err, ErrNotAcquired) {
		t.Fatalf("TryLock = %v, want the connection's error", err)
	}
	if got := p.Lost(); got != 1 {
		t.Fatalf("%d replies lost, want 1", got)
	}
	w.empty()
	if got := w.calls() - before; got != 2 {
		t.Errorf("%d script calls, want 2: the lock, once, and its undoing", got)
	}
}

func TestLostReply_OfAWaiterIsNotASecondHold(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind(WithPollInterval(time.Hour))
	h := locked(t, w.locker().Reentrant("a"))
	before := w.calls()
	got := beside(func() (*Hold, error) { return l.Reentrant("a").Lock(ctxOf(t)) })
	await.Until(t, "the waiter asked, listened and asked again", func() bool { return w.calls() == before+2 })
	p.Lose("evalsha")
	unlocked(t, h)
	next := got(t)
	if p.Lost() != 1 {
		t.Errorf("%d replies lost, want 1", p.Lost())
	}
	if m := w.hash("a"); len(m) != 1 || m[next.Owner().String()] != "1" {
		t.Errorf("hash = %v, want one hold of %s", m, next.Owner())
	}
	unlocked(t, next)
	w.empty()
}

func TestLostReply_IsSettledBeforeTheOwnerAsksAgain(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind()
	for range 20 {
		owner := WithOwner(l.NewOwner())
		p.Lose("evalsha")
		if _, err := l.Reentrant("a").TryLock(ctxOf(t), owner); err == nil {
			t.Fatal("TryLock succeeded without a reply")
		}
		h := locked(t, l.Reentrant("a"), owner)
		l.running.Wait()
		if got := w.hash("a")[h.Owner().String()]; got != "1" {
			t.Fatalf("count = %q, want 1: the undoing took the next hold away", got)
		}
		unlocked(t, h)
	}
}

func TestLostReply_OfReentryKeepsTheCount(t *testing.T) {
	w := newTestServer(t)
	l, p := w.behind()
	first := locked(t, l.Reentrant("a"))
	p.Lose("evalsha")
	if _, err := first.Reenter(ctxOf(t)); err == nil {
		t.Fatal("Reenter succeeded without a reply")
	}
	second := again(t, first)
	if got := w.hash("a")[first.Owner().String()]; got != "2" {
		t.Errorf("count = %q, want 2", got)
	}
	unlocked(t, first)
	unlocked(t, second)
	w.empty()
}

func TestCancel_BeforeSendAsksNothing(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	before := w.calls()
	for _, ask := range []func(context.Context, ...LockOption) (*Hold, error){l.Reentrant("a").Lock, l.Reentrant("a").TryLock, l.Fair("a").Lock} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := ask(ctx)
		wantErr(t, err, context.Canceled)
		wantErr(t, err, ErrNotAcquired)
	}
	l.running.Wait()
	if got := w.calls() - before; got != 0 {
		t.Errorf("%d script calls, want none", got)
	}
}

func TestRedisGone_EndsTheHoldByItsDeadline(t *testing.T) {
	w := newTestServer(t)
	l := w.locker(WithWatchdog(renewedLease), WithCallTimeout(time.Second))
	h := locked(t, l.Reentrant("a"))
	w.server.Kill()
	ended(t, h)
	if got := context.Cause(h.Context()); got != ErrLost {
		t.Errorf("cause = %v, want ErrLost", got)
	}
	if late := time.Since(h.Deadline()); late < 0 {
		t.Errorf("the context ended %v before the deadline", -late)
	}
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	_, err := l.Reentrant("a").Lock(ctxOf(t))
	if err == nil || errors.Is(err, ErrNotAcquired) {
		t.Errorf("Lock = %v, want an error of the connection at once", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for owner := range l.pending {
		if owner != h.Owner() {
			t.Errorf("%s is being undone, and was never sent", owner)
		}
	}
}

func TestRedisHangs_LockEndsOnTimeAndLeavesNothing(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	unlocked(t, locked(t, l.Reentrant("a")))
	w.server.Signal(syscall.SIGSTOP)
	for _, ask := range []func(context.Context, ...LockOption) (*Hold, error){l.Reentrant("a").TryLock, l.Reentrant("a").Lock} {
		start := time.Now()
		_, err := ask(within(t, 50*time.Millisecond))
		wantErr(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took > await.Limit/2 {
			t.Errorf("took %v, want about 50 ms", took)
		}
	}
	w.server.Signal(syscall.SIGCONT)
	w.empty() // what the server still did is undone
}

func TestPubSubKilled_WaitersAreWokenAgain(t *testing.T) {
	w := newTestServer(t)
	const channel = "redisson_lock__channel:{a}"
	h := locked(t, w.locker().Reentrant("a"))
	other := w.locker(WithPollInterval(time.Hour)).Reentrant("a")
	got := beside(func() (*Hold, error) { return other.Lock(ctxOf(t)) })
	for range 3 {
		await.Until(t, "the waiter listens", func() bool { return w.listeners(channel) == 1 })
		wantErr(t, w.eye.Do(ctxOf(t), "client", "kill", "type", "pubsub").Err(), nil)
		w.eye.Del(ctxOf(t), "nothing")
	}
	unlocked(t, h) // heard, or found when the connection is back
	unlocked(t, got(t))
	w.silent(channel)
}
