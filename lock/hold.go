package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A Hold is a lock that is held, from its acquisition until Unlock. It is not bound to a
// goroutine. All methods are safe for concurrent use. A nil Hold is one that is not held:
// its methods return ErrNotHeld, or nothing.
type Hold struct {
	session *session
	ctx     context.Context
	cancel  context.CancelCauseFunc

	derived []context.CancelCauseFunc // of contexts that end with the hold; guarded by session.mu
	cause   error                     // nil while the lock is held; guarded by session.mu

	unlock sync.Once
	result error // of unlock
}

// A holdContext is a context that also checks the deadline of its session in Err. So Err
// does not depend on a timer, which may be late in a process that was stopped or starved.
type holdContext struct {
	context.Context
	session *session
}

func (h holdContext) Err() error {
	h.session.endCause()
	return h.Context.Err()
}

// addLocked adds a hold, whose context has the values of ctx.
func (s *session) addLocked(ctx context.Context) *Hold {
	h := &Hold{session: s}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	h.ctx, h.cancel = holdContext{inner, s}, cancel
	s.holds[h] = struct{}{}
	return h
}

// endLocked cancels h's contexts. The session's mutex must be held.
func (h *Hold) endLocked(cause error) {
	delete(h.session.holds, h)
	h.cause = cause
	h.cancel(cause)
	for _, cancel := range h.derived {
		cancel(cause)
	}
}

// endCause returns why h has ended; nil while the lock is held.
func (h *Hold) endCause() error {
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.session.endCauseLocked()
	return h.cause
}

// Context returns a context that ends when the lock may no longer be relied on. Its cause
// is ErrLost if a renewal was refused or the lease, counted from before it was requested,
// is over; ErrReleased after Unlock; ErrClosed after the Locker was closed. It has the
// values of the acquiring context, but not its cancellation or deadline. Its Err method
// checks the clock, so that a process that was stopped sees the loss before it does
// anything else.
func (h *Hold) Context() context.Context {
	if h == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrNotHeld)
		return ctx
	}
	return h.ctx
}

// deriveContext returns a context derived from ctx that also ends when h does. The caller
// must call the returned function to release its resources.
func (h *Hold) deriveContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	inner, cancel := context.WithCancelCause(ctx)
	h.session.mu.Lock()
	defer h.session.mu.Unlock()
	h.derived = append(h.derived, cancel)
	if h.cause != nil {
		cancel(h.cause)
	}
	return holdContext{inner, h.session}, cancel
}

// Owner returns the owner of the hold.
func (h *Hold) Owner() Owner {
	if h == nil {
		return Owner{}
	}
	return h.session.params.owner
}

// Token returns the fencing token of a fenced lock, which is larger than that of every
// earlier hold. All holds of one owner at a time have the same token. It is 0 for other
// kinds of locks.
func (h *Hold) Token() int64 {
	if h == nil {
		return 0
	}
	return h.session.token
}

// Deadline returns the time until which the lock may be relied on unless it is renewed.
// It has a monotonic clock reading.
func (h *Hold) Deadline() time.Time {
	if h == nil {
		return time.Time{}
	}
	return h.session.currentDeadline()
}

// Extend extends the lease to at least d, MinLease to MaxLease, from now; it never shortens it. It returns
// ErrLost if the lock is not held any more, and ErrNotHeld after Unlock.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	if err := checkLease(d); err != nil {
		return err
	}
	if h == nil {
		return ErrNotHeld
	}
	s := h.session
	return s.call(ctx, h, "extend", func(ctx context.Context) (bool, error) {
		c := s.params
		c.lease = d
		sent := time.Now()
		held, err := s.lock.kind.extend(ctx, c)
		if held && err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.extendDeadlineLocked(sent, d)
		}
		return held, err
	})
}

// Reenter acquires the lock once more for the same owner. The lock is released when all
// holds are unlocked, in any order. It returns ErrNotReentrant for kinds that are not
// reentrant, ErrLost if the lock is not held any more, and ErrNotHeld after Unlock.
func (h *Hold) Reenter(ctx context.Context) (*Hold, error) {
	if h == nil {
		return nil, ErrNotHeld
	}
	return h.session.reenter(ctx, h, h.session.params.lease)
}

// Unlock ends the hold. The last hold of an owner releases the lock and wakes the
// waiters. The context of the hold ends before the call to Redis.
//
// Unlock works even if ctx has ended. It takes at most two call timeouts, and one more if
// a renewal is in progress. Calling it again returns the same result. ErrLost reports
// that the lock was lost before; its new holder is not affected. Any other error reports
// that Redis did not reply: the release is retried in the background, and otherwise the
// lease expires.
func (h *Hold) Unlock(ctx context.Context) error {
	if h == nil {
		return ErrNotHeld
	}
	h.unlock.Do(func() { h.result = h.session.unlock(ctx, h) })
	return h.result
}

// renew is called by the watchdog timer. Every third of the lease it extends the lock for
// another lease. If Redis replies that the lock is not held, the session ends
// immediately. Without a reply it tries again after a thirtieth of the lease, until the
// deadline ends the session.
func (s *session) renew() {
	if !s.locker.beginCall() {
		return
	}
	defer s.locker.endCall()
	ctx, cancel := context.WithTimeout(s.locker.ctx, min(s.locker.callTimeout, s.params.lease/3))
	defer cancel()
	if s.lockSend(ctx) != nil {
		s.scheduleRenewal(time.Now(), s.params.lease/30)
		return
	}
	defer s.unlockSend()
	if s.endCause() != nil {
		return
	}
	sent := time.Now()
	held, err := s.lock.kind.extend(ctx, s.params)
	switch {
	case err != nil:
		s.scheduleRenewal(sent, s.params.lease/30)
	case held:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.endCauseLocked() == nil {
			s.extendDeadlineLocked(sent, s.params.lease)
			s.renewTimer.Reset(time.Until(sent.Add(s.params.lease / 3)))
		}
	default:
		s.markLost()
	}
}

// scheduleRenewal sets the watchdog timer to a pause after the last call was sent.
func (s *session) scheduleRenewal(sent time.Time, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endCauseLocked() == nil {
		s.renewTimer.Reset(max(time.Until(sent.Add(pause)), time.Millisecond))
	}
}

// markLost ends the session because the owner does not hold the lock any more, or not all
// of it. What is left of several resources is released.
func (s *session) markLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.endLocked(ErrLost)
		s.cleanUpLocked()
	}
}

// leadPause is the longest time until Lead campaigns again after an error, or after work
// has returned by itself.
const leadPause = time.Second

// Lead runs a leader election with a lock: it calls work while this process holds l, and
// campaigns again after that, until ctx is done. Then it returns the cause of ctx. In any
// case work has returned, and l is released, before Lead continues or returns.
//
// The context of work ends a tenth of the lease before another process can acquire the
// lock (3 s by default); work has this time to stop. It is measured on this machine: work
// that ignores its context, or a machine that is suspended, can still overlap with the
// next leader. Use a fenced lock, and the token of [TokenFrom], where that would do harm.
//
// Lead returns ErrClosed if the Locker is closed, and returns at once if the name or the
// lease is not valid. All other errors are retried.
func Lead(ctx context.Context, l Lockable, work func(context.Context)) error {
	if l == nil || work == nil {
		return fmt.Errorf("%w: the lock or the work is nil", ErrInvalidArgument)
	}
	for {
		hold, err := l.Lock(ctx)
		if err == nil {
			runHeld(ctx, hold, work)
			err = hold.Unlock(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalidName) || errors.Is(err, ErrInvalidArgument) ||
			errors.Is(err, ErrNotReentrant) || errors.Is(err, ErrInvalidLease) {
			return err
		}
		sleep[struct{}](ctx, nil, leadPause/2+rand.N(leadPause/2))
	}
}

// runHeld runs work, and ends its context before the lease is over.
func runHeld(ctx context.Context, hold *Hold, work func(context.Context)) {
	workCtx, cancel := hold.deriveContext(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	margin := hold.session.params.lease / 10
	done := make(chan struct{})
	go func() {
		defer close(done)
		for workCtx.Err() == nil {
			left := time.Until(hold.Deadline()) - margin
			if left <= 0 {
				cancel(ErrLost)
				return
			}
			sleep[struct{}](workCtx, nil, left)
		}
	}()
	work(workCtx)
	cancel(nil)
	<-done
}

type tokenKey struct{}

// TokenFrom returns the fencing token of the lock that [Lead] or [Do] holds for the work
// with this context. It is 0 if ctx is not such a context or the lock has no tokens.
func TokenFrom(ctx context.Context) int64 {
	token, _ := ctx.Value(tokenKey{}).(int64)
	return token
}

// Do acquires l, calls work, and releases l. The context of work is derived from ctx. It
// also ends when the lock may no longer be relied on, with the cause ErrLost, and
// [TokenFrom] returns the fencing token from it. Do returns the errors of work and of the
// unlock joined: if the lock was lost, the result matches ErrLost even if work returned
// nil.
func Do(ctx context.Context, l Lockable, work func(context.Context) error) (err error) {
	if l == nil || work == nil {
		return fmt.Errorf("%w: the lock or the work is nil", ErrInvalidArgument)
	}
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	workCtx, cancel := hold.deriveContext(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	return work(workCtx)
}
