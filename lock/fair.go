package lock

import (
	"context"
	"time"
)

// fairWait is how long Redisson lets a waiter stand in the queue after the one
// before it. Ours keep to it, so that both can share a queue.
const fairWait = 5 * time.Minute

// Fair is a reentrant lock that is held in the order in which it was asked for,
// across processes. It is what Redisson calls RFairLock: the hash of a reentrant
// lock, a list of waiters, and a sorted set of the times after which each may be
// passed over.
//
// A waiter of this package also says every time it asks that it lives, in the
// sorted set "weir_lock_alive:{name}"; the ones behind pass over it when it has
// said nothing for three times WithPoll's time. One of Redisson's that died is
// passed over when its own time is up.
func (l *Locker) Fair(name string) *Lock {
	queue := prefixed("redisson_lock_queue", name)
	return l.newLock(name, &fair{
		reentrant: l.reentrant(name), lock: l.scripts["fair_lock"], unlock: l.scripts["fair_unlock"],
		keys: []string{name, queue, prefixed("redisson_lock_timeout", name), prefixed("weir_lock_alive", name)},
	}, traits{exclusive: true, enters: true, crowds: true, queues: true})
}

// fair is the kind of Fair. Each waiter has a channel of its own.
type fair struct {
	*reentrant
	lock, unlock *script
	keys         []string
}

func (k *fair) attempt(ctx context.Context, c claim) (answer, error) {
	queue := 0
	if c.patient {
		queue = 1
	}
	alive := 3 * k.locker.poll
	r, err := k.locker.run(ctx, k.lock, c.replicas, k.keys, c.owner.id, c.count, c.lease.Milliseconds(),
		queue, alive.Milliseconds(), fairWait.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	return r.answer(k.locker.hub, k.channel+":"+c.owner.id), nil
}

func (k *fair) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, k.keys, c.owner.id, c.count, verb, k.channel, fairWait.Milliseconds())
	return r.released(), err
}
