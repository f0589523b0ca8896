package lock

import "context"

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

func (k *simple) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := k.locker.run(ctx, k.lock, c.replicas, []string{k.name}, c.owner.id, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(k.locker.hub, k.channel), nil
}

func (k *simple) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := k.locker.run(ctx, k.prolong, 0, []string{k.name}, c.owner.id, c.lease.Milliseconds())
	return r.done, err
}

func (k *simple) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := k.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := k.locker.run(ctx, k.unlock, 0, []string{k.name}, c.owner.id, verb, k.channel)
	return r.releaseResult(), err
}
