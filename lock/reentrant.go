package lock

import "context"

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
