package lock

import (
	"context"
	"time"
)

// fairWait is the time for which Redisson keeps a waiter in the queue after the one before
// it. This package does the same, so that both can share a queue.
const fairWait = 5 * time.Minute

// Fair returns a reentrant lock that is granted in FIFO order across processes. It is
// Redisson's RFairLock: the hash of a reentrant lock, a list of waiters, and a sorted set
// of the times after which each waiter may be skipped.
//
// Waiters of this package also record a heartbeat with every attempt, in the sorted set
// "weir_lock_alive:{name}". A waiter without a heartbeat for three times WithPoll is
// skipped. Dead waiters of Redisson are skipped when their time in the sorted set is up.
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
