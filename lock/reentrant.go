package lock

import (
	"context"
	"time"
)

// Reentrant is the lock that Redisson calls RLock: a hash under name with one
// field, the owner, whose value is the number of holds.
func (l *Locker) Reentrant(name string) *Lock {
	return l.newLock(name, l.reentrant(name), traits{exclusive: true, enters: true})
}

// reentrant is the kind of Reentrant.
type reentrant struct {
	locker                *Locker
	name, channel         string
	lock, unlock, prolong *script
}

func (l *Locker) reentrant(name string) *reentrant {
	return &reentrant{
		locker: l, name: name, channel: prefixed("redisson_lock__channel", name),
		lock: l.scripts["reentrant_lock"], unlock: l.scripts["reentrant_unlock"], prolong: l.scripts["reentrant_extend"],
	}
}

func (k *reentrant) attempt(ctx context.Context, c claim) (answer, error) {
	reply, err := k.locker.run(ctx, k.lock, c.replicas, 2, []string{k.name}, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	return answer{held: reply[0] == 1, wait: millis(reply[1]), hub: k.locker.hub, channel: k.channel}, nil
}

func (k *reentrant) extend(ctx context.Context, c claim) (bool, error) {
	reply, err := k.locker.run(ctx, k.prolong, 0, 1, []string{k.name}, c.owner.id, c.lease.Milliseconds())
	return err == nil && reply[0] == 1, err
}

func (k *reentrant) release(ctx context.Context, c claim) (parting, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return parting{}, err
	}
	reply, err := k.locker.run(ctx, k.unlock, 0, 2, []string{k.name}, c.owner.id, c.count, verb, k.channel)
	if err != nil {
		return parting{}, err
	}
	return parting{held: reply[0] == 1, told: reply[1]}, nil
}

// millis is a time to wait as scripts answer it: a key that is about to end has
// 0 left, which is not "unknown".
func millis(n int64) time.Duration {
	if n < 0 {
		return 0
	}
	return time.Duration(max(n, 1)) * time.Millisecond
}
