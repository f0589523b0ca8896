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
