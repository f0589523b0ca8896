package lock

import (
	"context"
	"fmt"
	"time"
)

// A Semaphore is a semaphore whose permits have no owner: Redisson's RSemaphore. Permits
// taken by a process that died stay taken; those of [Locker.Permits] return. All methods
// are safe for concurrent use.
//
// Taking and releasing permits writes a record, "{name}:weir_taken:<id>", for half a
// minute: after a lost reply it shows whether the call was executed, so that it is never
// counted twice.
type Semaphore struct {
	lock *Lock
	kind *semaphore
}

// Semaphore returns the semaphore with this name. It has no permits before TrySetPermits.
func (l *Locker) Semaphore(name string) *Semaphore {
	k := &semaphore{
		locker: l, name: name, channel: prefixed("redisson_sc", name), mark: suffixed(name, "weir_taken:"),
		take: l.scripts["semaphore_take"], undo: l.scripts["semaphore_undo"],
		give: l.scripts["semaphore_give"], set: l.scripts["semaphore_set"],
	}
	return &Semaphore{lock: l.newLock(name, k, traits{}), kind: k}
}

// TrySetPermits sets the number of permits to n, unless the semaphore exists; set reports
// whether it did.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	if s.lock.err != nil {
		return false, s.lock.err
	}
	return s.lock.locker.trySet(ctx, initial{script: s.kind.set, name: s.lock.name, value: n, channel: s.kind.channel, message: n})
}

// Acquire takes n permits, and waits for them until ctx is done. Callers of one process are
// served in FIFO order, so that a large request does not starve.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).wait)
}

// TryAcquire takes n permits, or none and returns ErrNotAcquired.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).once)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, try way) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: %d permits asked for; ask for at least 1", s.lock.name, n)
	}
	l := s.lock.locker
	a := &acquisition{locker: l, lock: s.lock, claim: claim{owner: l.NewOwner(), permits: n, lease: markLife}}
	a.accept = func(context.Context, outcome) error { return nil }
	return a.run(ctx, try)
}

// Release adds n permits, whether or not they were taken before. If the reply is lost, the
// call is repeated, and counts once.
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: %d permits given; give at least 1", s.lock.name, n)
	}
	if s.lock.err != nil {
		return s.lock.err
	}
	l := s.lock.locker
	return l.callWithID(ctx, func(ctx context.Context, verb, id string) error {
		_, err := l.run(ctx, s.kind.give, 0, []string{s.lock.name, s.kind.mark + id}, n, markLife.Milliseconds(), verb, s.kind.channel)
		return err
	})
}

// Available returns the number of available permits; 0 if the semaphore does not exist.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return s.lock.number(ctx)
}

// markLife is the TTL of the records of calls: longer than a call is repeated after a lost
// reply.
const markLife = 30 * time.Second

// semaphore is the kind of Semaphore; a claim is a call that takes permits.
type semaphore struct {
	locker                *Locker
	name, channel, mark   string
	take, undo, give, set *script
}

func (k *semaphore) attempt(ctx context.Context, c claim) (answer, error) {
	r, err := k.locker.run(ctx, k.take, c.replicas, []string{k.name, k.mark + c.owner.id}, c.permits, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	return answer{held: r.done, hub: k.locker.hub, channel: k.channel}, nil
}

// extend does nothing: permits have no lease.
func (k *semaphore) extend(context.Context, claim) (bool, error) { return true, nil }

func (k *semaphore) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	r, err := k.locker.run(ctx, k.undo, 0, []string{k.name, k.mark + c.owner.id}, c.permits, verb, k.channel)
	return released{held: r.done}, err
}
