package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// A revocable kind can be inspected and force-unlocked by other owners.
type revocable interface {
	// look returns the remaining lease of the holder in ms, -1 if it has none; done is
	// false if the lock is free.
	look(ctx context.Context) (reply, error)
	// force releases all holds and notifies waiters; done is false if the lock was free.
	force(ctx context.Context) (reply, error)
}

// Locked reports whether any owner holds the lock, in this process or another; this may
// have changed when the reply arrives. For a read lock it reports whether there are
// readers, for a write lock whether there is a writer. For [Multi] and [Red] it returns
// errors.ErrUnsupported: ask their parts one by one.
func (lk *Lock) Locked(ctx context.Context) (bool, error) {
	r, err := lk.revoke(ctx, "look at", revocable.look)
	return r.done, err
}

// Remaining returns the remaining lease of the current holder; 0 if the lock is free, and
// the maximum Duration if the lock has no expiry. It supports the same kinds as Locked.
func (lk *Lock) Remaining(ctx context.Context) (time.Duration, error) {
	r, err := lk.revoke(ctx, "look at", revocable.look)
	switch {
	case !r.done:
		return 0, err
	case r.n < 0:
		return math.MaxInt64, nil
	}
	return time.Duration(r.n) * time.Millisecond, nil
}

// ForceUnlock releases the lock for all its holders, notifies waiters, and reports whether
// it was held. It is for operators. Holders of a reentrant, fenced, simple or read-write
// lock of this package that have held it for a second are notified at once, and their holds
// end with ErrLost. Other holders notice it at their next renewal, within a third of the
// lease, or without a watchdog not before its end; meanwhile the next holder may already
// run. It supports the same kinds as Locked. A call without a reply may have succeeded;
// repeating it affects only an owner that acquired the lock in between.
func (lk *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	r, err := lk.revoke(ctx, "take away", revocable.force)
	return r.done, err
}

func (lk *Lock) revoke(ctx context.Context, verb string, do func(revocable, context.Context) (reply, error)) (reply, error) {
	if lk.err != nil {
		return reply{}, lk.err
	}
	k, ok := lk.kind.(revocable)
	if !ok {
		return reply{}, fmt.Errorf("%s lock %s: %w: ask its parts", verb, lk.name, errors.ErrUnsupported)
	}
	if !lk.locker.begin() {
		return reply{}, ErrClosed
	}
	defer lk.locker.end()
	ctx, cancel := context.WithTimeout(ctx, lk.locker.call)
	defer cancel()
	r, err := do(k, ctx)
	if err != nil {
		err = fmt.Errorf("%s lock %s: %w", verb, lk.name, err)
	}
	return r, err
}

// look implements revocable for kinds whose key exists while they are held; mode is that of
// a read-write lock, or empty.
func (l *Locker) look(ctx context.Context, name, mode string) (reply, error) {
	return l.run(ctx, l.scripts["look"], 0, []string{name}, mode)
}

func (k *reentrant) look(ctx context.Context) (reply, error) { return k.locker.look(ctx, k.name, "") }

func (k *reentrant) force(ctx context.Context) (reply, error) {
	return k.locker.take(ctx, k.name, k.channel)
}

func (k *simple) look(ctx context.Context) (reply, error) { return k.locker.look(ctx, k.name, "") }

func (k *simple) force(ctx context.Context) (reply, error) {
	return k.locker.take(ctx, k.name, k.channel)
}

// take deletes a lock that consists of one key, and publishes the release.
func (l *Locker) take(ctx context.Context, name, channel string) (reply, error) {
	verb, err := l.publish(ctx)
	if err != nil {
		return reply{}, err
	}
	return l.run(ctx, l.scripts["force"], 0, []string{name}, verb, channel)
}

func (k *fair) force(ctx context.Context) (reply, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return reply{}, err
	}
	return k.locker.run(ctx, k.unlock, 0, k.keys, "", "all", verb, k.channel, fairWait.Milliseconds())
}

func (k *reader) look(ctx context.Context) (reply, error) { return k.locker.look(ctx, k.name, "read") }
func (k *writer) look(ctx context.Context) (reply, error) { return k.locker.look(ctx, k.name, "write") }

func (k *reader) force(ctx context.Context) (reply, error) { return k.take(ctx, "read", "0") }
func (k *writer) force(ctx context.Context) (reply, error) { return k.take(ctx, "write", "1") }

func (k *readwrite) take(ctx context.Context, mode, message string) (reply, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return reply{}, err
	}
	return k.locker.run(ctx, k.locker.scripts["force_mode"], 0, []string{k.name}, mode, verb, k.channel, message, k.holds)
}
