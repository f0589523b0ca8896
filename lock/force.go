package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// A forceable kind can be looked at, and taken away, by those who do not hold it.
type forceable interface {
	// leaseLeft says how many ms the lease of the holder lasts, -1 for without end;
	// done is false if nobody holds the lock.
	leaseLeft(ctx context.Context) (reply, error)
	// force gives back what anybody holds, and tells who waits; done is false if
	// nobody held it.
	force(ctx context.Context) (reply, error)
}

// Locked reports whether anybody holds the lock, in this process or another. It
// may have changed when the answer arrives. For a reader's lock it is whether
// anybody reads, for a writer's whether anybody writes. Locks that are held
// together by [Multi] or [Redlock] can only be asked one by one: errors.ErrUnsupported.
func (lk *Lock) Locked(ctx context.Context) (bool, error) {
	r, err := lk.callForceable(ctx, "look at", forceable.leaseLeft)
	return r.done, err
}

// RemainingLease is how long the lease of whoever holds the lock lasts if it is not
// renewed; 0 if nobody holds it, and the longest Duration if a lock of others'
// has no end. It knows the kinds that Locked knows.
func (lk *Lock) RemainingLease(ctx context.Context) (time.Duration, error) {
	r, err := lk.callForceable(ctx, "look at", forceable.leaseLeft)
	switch {
	case !r.done:
		return 0, err
	case r.n < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(r.n) * time.Millisecond, nil
}

// ForceUnlock takes the lock away from all who hold it, wakes who waits, and
// reports whether anybody held it. It is for operators. Who has held a reentrant,
// fenced, simple or read-write lock of this package for a second hears of it at
// once, and the hold ends with ErrLost; others go on until they renew next, a third
// of the lease at most, or without a watchdog to its end, while the next one
// begins. It knows the kinds that Locked knows. A call without an answer may
// have done it; asking again does no harm but to who got the lock meanwhile.
func (lk *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	r, err := lk.callForceable(ctx, "take away", forceable.force)
	return r.done, err
}

func (lk *Lock) callForceable(ctx context.Context, verb string, do func(forceable, context.Context) (reply, error)) (reply, error) {
	if lk.err != nil {
		return reply{}, lk.err
	}
	k, ok := lk.kind.(forceable)
	if !ok {
		return reply{}, fmt.Errorf("%s lock %s: %w: ask its parts", verb, lk.name, errors.ErrUnsupported)
	}
	if !lk.locker.beginCall() {
		return reply{}, ErrClosed
	}
	defer lk.locker.endCall()
	ctx, cancel := context.WithTimeout(ctx, lk.locker.callTimeout)
	defer cancel()
	r, err := do(k, ctx)
	if err != nil {
		err = fmt.Errorf("%s lock %s: %w", verb, lk.name, err)
	}
	return r, err
}

// leaseLeft is that of all kinds whose key is there while they are held; mode is that
// of a read-write lock, or empty.
func (l *Locker) leaseLeft(ctx context.Context, name, mode string) (reply, error) {
	return l.run(ctx, l.scripts["look"], 0, []string{name}, mode)
}

func (k *reentrant) leaseLeft(ctx context.Context) (reply, error) {
	return k.locker.leaseLeft(ctx, k.name, "")
}

func (k *reentrant) force(ctx context.Context) (reply, error) {
	return k.locker.forceDelete(ctx, k.name, k.channel)
}

func (k *simple) leaseLeft(ctx context.Context) (reply, error) {
	return k.locker.leaseLeft(ctx, k.name, "")
}

func (k *simple) force(ctx context.Context) (reply, error) {
	return k.locker.forceDelete(ctx, k.name, k.channel)
}

// forceDelete deletes a lock that is one key and tells.
func (l *Locker) forceDelete(ctx context.Context, name, channel string) (reply, error) {
	verb, err := l.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return l.run(ctx, l.scripts["force"], 0, []string{name}, verb, channel)
}

func (k *fair) force(ctx context.Context) (reply, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return k.locker.run(ctx, k.unlock, 0, k.keys, "", "all", verb, k.channel, fairWaitTime.Milliseconds())
}

func (k *reader) leaseLeft(ctx context.Context) (reply, error) {
	return k.locker.leaseLeft(ctx, k.name, "read")
}
func (k *writer) leaseLeft(ctx context.Context) (reply, error) {
	return k.locker.leaseLeft(ctx, k.name, "write")
}

func (k *reader) force(ctx context.Context) (reply, error) { return k.forceMode(ctx, "read", "0") }
func (k *writer) force(ctx context.Context) (reply, error) { return k.forceMode(ctx, "write", "1") }

func (k *readwrite) forceMode(ctx context.Context, mode, message string) (reply, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return reply{}, err
	}
	return k.locker.run(ctx, k.locker.scripts["force_mode"], 0, []string{k.name}, mode, verb, k.channel, message, k.holdPrefix)
}
