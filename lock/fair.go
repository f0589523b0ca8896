package lock

import (
	"context"
	"time"
)

// fairWaitTime is how long Redisson lets a waiter stand in the queue after the one
// before it. Ours keep to it, so that both can share a queue.
const fairWaitTime = 5 * time.Minute

// Fair is a reentrant lock that is held in the order in which it was asked for,
// across processes. It is what Redisson calls RFairLock: the hash of a reentrant
// lock, a list of waiters, and a sorted set of the times after which each may be
// passed over.
//
// A waiter of this package also says every time it asks that it lives, in the
// sorted set "weir_lock_alive:{name}"; the ones behind pass over it when it has
// said nothing for three times WithPollInterval's time. One of Redisson's that died is
// passed over when its own time is up.
func (l *Locker) Fair(name string) *Lock {
	queue := prefixedKey("redisson_lock_queue", name)
	return l.newLock(name, &fair{
		reentrant: l.reentrant(name), lock: l.scripts["fair_lock"], unlock: l.scripts["fair_unlock"],
		keys: []string{name, queue, prefixedKey("redisson_lock_timeout", name), prefixedKey("weir_lock_alive", name)},
	}, traits{exclusive: true, reentrant: true, noLocalQueue: true, queuesInRedis: true})
}

// fair is the kind of Fair. Each waiter has a channel of its own.
type fair struct {
	*reentrant
	lock, unlock *script
	keys         []string
}

func (k *fair) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	queue := 0
	if c.willWait {
		queue = 1
	}
	alive := 3 * k.locker.pollInterval
	r, err := k.locker.run(ctx, k.lock, c.replicas, k.keys, c.owner.id, c.count, c.lease.Milliseconds(),
		queue, alive.Milliseconds(), fairWaitTime.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(k.locker.hub, k.channel+":"+c.owner.id), nil
}

func (k *fair) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, k.keys, c.owner.id, c.count, verb, k.channel, fairWaitTime.Milliseconds())
	return r.releaseResult(), err
}
