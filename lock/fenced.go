package lock

import "context"

// Fenced returns a reentrant lock whose holds have a fencing token, larger than that of
// every earlier hold, across processes and lost leases. The protected resource must
// remember the largest token it has seen, and reject smaller ones. It is Redisson's
// RFencedLock.
//
// The last token, "redisson_lock_token:{name}", has no TTL. Each token is at least one
// more, as in Redisson, and at least the server's clock in microseconds: so tokens increase
// even if the last one was deleted, evicted or lost in a failover, as long as no server's
// clock is behind it. Tokens are below 2^53.
func (l *Locker) Fenced(name string) *Lock {
	k := &fenced{
		reentrant: l.reentrant(name), lock: l.scripts["fenced_lock"],
		keys: []string{name, prefixed("redisson_lock_token", name)},
	}
	return l.newLock(name, k, traits{exclusive: true, enters: true})
}

// fenced is the kind of Fenced.
type fenced struct {
	*reentrant
	lock *script
	keys []string
}

func (k *fenced) attempt(ctx context.Context, c claim) (answer, error) {
	r, err := k.locker.run(ctx, k.lock, c.replicas, k.keys, c.owner.id, c.count, c.lease.Milliseconds())
	if err != nil {
		return answer{}, err
	}
	a := r.answer(k.locker.hub, k.channel)
	if a.held {
		a.token = r.n
	}
	return a, nil
}
