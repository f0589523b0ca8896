package lock

import (
	"context"
	"time"
)

// Reentrant returns a reentrant lock, compatible with Redisson's RLock: a hash under name
// with one field, the owner, whose value is the number of holds.
func (l *Locker) Reentrant(name string) *Lock {
	return l.newLock(name, l.reentrant(name), traits{exclusive: true, reentrant: true})
}

// reentrant is the kind of Reentrant.
type reentrant struct {
	locker                *Locker
	name, channel         string
	lock, unlock, prolong *script
}

func (l *Locker) reentrant(name string) *reentrant {
	return &reentrant{
		locker: l, name: name, channel: prefixedKey("redisson_lock__channel", name),
		lock: l.scripts["reentrant_lock"], unlock: l.scripts["reentrant_unlock"], prolong: l.scripts["reentrant_extend"],
	}
}

func (k *reentrant) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := k.locker.run(ctx, k.lock, c.replicas, []string{k.name}, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(k.locker.hub, k.channel), nil
}

func (k *reentrant) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := k.locker.run(ctx, k.prolong, 0, []string{k.name}, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (k *reentrant) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, []string{k.name}, c.owner.id, c.count, verb, k.channel)
	return r.releaseResult(), err
}

// Simple returns the lock that libraries of many languages implement: a string under
// name, created with SET NX PX, whose value is the owner. It is not reentrant, and must
// not share a name with other kinds. Its release is published on "weir_simple:{name}";
// programs that do not subscribe to it have to poll.
func (l *Locker) Simple(name string) *Lock {
	k := &simple{
		locker: l, name: name, channel: prefixedKey("weir_simple", name),
		lock: l.scripts["simple_lock"], unlock: l.scripts["simple_unlock"], prolong: l.scripts["simple_extend"],
	}
	return l.newLock(name, k, traits{exclusive: true})
}

// simple is the kind of Simple.
type simple struct {
	locker                *Locker
	name, channel         string
	lock, unlock, prolong *script
}

func (s *simple) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := s.locker.run(ctx, s.lock, c.replicas, []string{s.name}, c.owner.id, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(s.locker.hub, s.channel), nil
}

func (s *simple) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := s.locker.run(ctx, s.prolong, 0, []string{s.name}, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (s *simple) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := s.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := s.locker.run(ctx, s.unlock, 0, []string{s.name}, c.owner.id, verb, s.channel)
	return r.releaseResult(), err
}

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

// Fenced returns a reentrant lock whose holds have a fencing token, which is larger than
// that of every earlier hold, across processes and lost leases. The guarded resource must
// remember the largest token it has seen and reject smaller ones. It is compatible with
// Redisson's RFencedLock.
//
// The last token is stored in "redisson_lock_token:{name}" without expiry. Each token is
// at least the last one plus one, as in Redisson, and at least the server's clock in
// microseconds. So tokens keep increasing after the last one was deleted, evicted or lost
// in a failover, as long as no server's clock is behind it. They are below 2^53.
func (l *Locker) Fenced(name string) *Lock {
	k := &fenced{
		reentrant: l.reentrant(name), lock: l.scripts["fenced_lock"],
		keys: []string{name, prefixedKey("redisson_lock_token", name)},
	}
	return l.newLock(name, k, traits{exclusive: true, reentrant: true})
}

// fenced is the kind of Fenced.
type fenced struct {
	*reentrant
	lock *script
	keys []string
}

func (f *fenced) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := f.locker.run(ctx, f.lock, c.replicas, f.keys, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	a := r.attemptResult(f.locker.hub, f.channel)
	if a.held {
		a.token = r.n
	}
	return a, nil
}
