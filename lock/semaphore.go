package lock

import (
	"context"
	"fmt"
	"time"
)

// A Semaphore counts permits that anybody may take and anybody may give: it is
// what Redisson calls RSemaphore. Permits of a process that died stay taken;
// [Locker.ExpirableSemaphore] gives them back. All methods are safe for concurrent use.
//
// A taker leaves a mark, "{name}:weir_taken:<id>", for half a minute, and a
// giver too: a call whose reply was lost is found out by it and never counted
// twice.
type Semaphore struct {
	lock *Lock
	kind *semaphore
}

// Semaphore makes the semaphore of name. It has no permits until TrySetPermits.
func (l *Locker) Semaphore(name string) *Semaphore {
	k := &semaphore{
		locker: l, name: name, channel: prefixedKey("redisson_sc", name), mark: suffixedKey(name, "weir_taken:"),
		take: l.scripts["semaphore_take"], undo: l.scripts["semaphore_undo"],
		give: l.scripts["semaphore_give"], set: l.scripts["semaphore_set"],
	}
	return &Semaphore{lock: l.newLock(name, k, traits{}), kind: k}
}

// TrySetPermits gives the semaphore n permits unless it exists already, which
// it reports.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	if s.lock.err != nil {
		return false, s.lock.err
	}
	return s.lock.locker.trySet(ctx, initialValue{script: s.kind.set, name: s.lock.name, value: n, channel: s.kind.channel, message: n})
}

// Acquire takes n permits, waiting for them until ctx is done. Callers of one
// process are served in order, so that a large request is not overtaken for ever.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).wait)
}

// TryAcquire takes n permits, or none and returns ErrNotAcquired.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).tryOnce)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, try strategy) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: %d permits asked for; ask for at least 1", s.lock.name, n)
	}
	l := s.lock.locker
	a := &acquisition{locker: l, lock: s.lock, params: callParams{owner: l.NewOwner(), permits: n, lease: markTTL}}
	a.accept = func(context.Context, outcome) error { return nil }
	return a.run(ctx, try)
}

// Release gives n permits, whether or not they were taken before. A lost reply
// makes it ask again; the permits are given once.
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: %d permits given; give at least 1", s.lock.name, n)
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

// Available is how many permits are left; 0 if the semaphore does not exist.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return s.lock.readNumber(ctx)
}

// markTTL is how long marks of calls live: longer than anybody tries to find
// out about a lost reply.
const markTTL = 30 * time.Second

// semaphore is the kind of Semaphore; a claim is one call that takes permits.
type semaphore struct {
	locker                *Locker
	name, channel, mark   string
	take, undo, give, set *script
}

func (k *semaphore) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := k.locker.run(ctx, k.take, c.replicas, []string{k.name, k.mark + c.owner.id}, c.permits, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return attemptResult{held: r.done, hub: k.locker.hub, channel: k.channel}, nil
}

// extend has nothing to extend: permits are taken until somebody gives them.
func (k *semaphore) extend(context.Context, callParams) (bool, error) { return true, nil }

func (k *semaphore) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := k.locker.run(ctx, k.undo, 0, []string{k.name, k.mark + c.owner.id}, c.permits, verb, k.channel)
	return releaseResult{held: r.done}, err
}
