package lock

import (
	"context"
	"fmt"
	"time"
)

// A Semaphore has permits that any process may acquire and release. It is compatible with
// Redisson's RSemaphore. Permits of a process that died stay taken; those of a
// [Locker.ExpirableSemaphore] expire. All methods are safe for concurrent use.
//
// Each call leaves a mark, "{name}:weir_taken:<id>", for half a minute. It reveals
// whether a call whose reply was lost has been executed, so that it is never counted
// twice.
type Semaphore struct {
	lock *Lock
	kind *semaphore
}

// Semaphore returns the semaphore with this name. It has no permits before TrySetPermits.
func (l *Locker) Semaphore(name string) *Semaphore {
	k := &semaphore{
		locker: l, name: name, channel: prefixedKey("redisson_sc", name), mark: suffixedKey(name, "weir_taken:"),
		take: l.scripts["semaphore_take"], undo: l.scripts["semaphore_undo"],
		give: l.scripts["semaphore_give"], set: l.scripts["semaphore_set"],
	}
	return &Semaphore{lock: l.newLock(name, k, traits{}), kind: k}
}

// TrySetPermits creates the semaphore with n permits if it does not exist, and reports
// whether it did.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	if s.lock.err != nil {
		return false, s.lock.err
	}
	return s.lock.locker.trySet(ctx, initialValue{script: s.kind.set, name: s.lock.name, value: n, channel: s.kind.channel, message: n})
}

// Acquire acquires n permits, waiting until ctx is done. Callers of one process are
// served in order, so that a large request is not starved.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).wait)
}

// TryAcquire acquires n permits, or acquires none and returns ErrNotAcquired.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).tryOnce)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, try strategy) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: cannot acquire %d permits; the minimum is 1", s.lock.name, n)
	}
	l := s.lock.locker
	a := &acquisition{locker: l, lock: s.lock, params: callParams{owner: l.NewOwner(), permits: n, lease: markTTL}}
	a.accept = func(context.Context, outcome) error { return nil }
	return a.run(ctx, try)
}

// Release adds n permits, whether or not they were acquired before. If the reply is lost,
// the call is sent again, but has an effect only once.
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: cannot release %d permits; the minimum is 1", s.lock.name, n)
	}
	if s.lock.err != nil {
		return s.lock.err
	}
	l := s.lock.locker
	return l.callWithID(ctx, func(ctx context.Context, verb, id string) error {
		_, err := l.run(ctx, s.kind.give, 0, []string{s.lock.name, s.kind.mark + id}, n, markTTL.Milliseconds(), verb, s.kind.channel)
		return err
	})
}

// Available returns the number of available permits; 0 if the semaphore does not exist.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return s.lock.readNumber(ctx)
}

// markTTL is the time to live of the marks of calls: longer than any call is repeated.
const markTTL = 30 * time.Second

// semaphore is the kind of Semaphore. An owner is one call that acquires permits.
type semaphore struct {
	locker                *Locker
	name, channel, mark   string
	take, undo, give, set *script
}

func (s *semaphore) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := s.locker.run(ctx, s.take, c.replicas, []string{s.name, s.mark + c.owner.id}, c.permits, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return attemptResult{held: r.done, hub: s.locker.hub, channel: s.channel}, nil
}

// extend does nothing: permits do not expire.
func (s *semaphore) extend(context.Context, callParams) (bool, error) { return true, nil }

func (s *semaphore) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := s.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := s.locker.run(ctx, s.undo, 0, []string{s.name, s.mark + c.owner.id}, c.permits, verb, s.channel)
	return releaseResult{held: r.done}, err
}
