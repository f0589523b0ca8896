package lock

import "context"

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
