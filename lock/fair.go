package lock

import (
	"context"
	"time"
)

// fairWaitTime is the time after which Redisson skips a waiter, counted from the time of
// the waiter before it. This package uses the same, so that both can share a queue.
const fairWaitTime = 5 * time.Minute

// Fair returns a reentrant lock that is acquired in the order of the requests, across
// processes. It is compatible with Redisson's RFairLock: the hash of a reentrant lock, a
// list of waiters, and a sorted set of the times after which each waiter may be skipped.
//
// A waiter of this package also records, with every attempt, that it is alive, in the
// sorted set "weir_lock_alive:{name}". It is skipped if it has not done so for three poll
// intervals. A waiter of Redisson that died is skipped when its own time is over.
func (l *Locker) Fair(name string) *Lock {
	queue := prefixedKey("redisson_lock_queue", name)
	return l.newLock(name, &fair{
		reentrant: l.reentrant(name), lock: l.scripts["fair_lock"], unlock: l.scripts["fair_unlock"],
		keys: []string{name, queue, prefixedKey("redisson_lock_timeout", name), prefixedKey("weir_lock_alive", name)},
	}, traits{exclusive: true, reentrant: true, noLocalQueue: true, queuesInRedis: true})
}

// fair is the kind of Fair. Each waiter has its own channel.
type fair struct {
	*reentrant
	lock, unlock *script
	keys         []string
}

func (f *fair) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	queue := 0
	if c.willWait {
		queue = 1
	}
	alive := 3 * f.locker.pollInterval
	r, err := f.locker.run(ctx, f.lock, c.replicas, f.keys, c.owner.id, c.count, c.lease.Milliseconds(),
		queue, alive.Milliseconds(), fairWaitTime.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(f.locker.hub, f.channel+":"+c.owner.id), nil
}

func (f *fair) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := f.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := f.locker.run(ctx, f.unlock, 0, f.keys, c.owner.id, c.count, verb, f.channel, fairWaitTime.Milliseconds())
	return r.releaseResult(), err
}
