package lock

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"
)

// Permits is a semaphore whose permits return when their holder dies: Redisson's
// RPermitExpirableSemaphore. Each permit is a [Hold], renewed until it is unlocked unless
// it was taken with WithLease; its Owner is the id of the permit, 32 hexadecimal digits, as
// in Redisson.
//
// It is not reentrant: WithOwner returns ErrReentrant.
type Permits struct {
	lock *Lock
	set  *script
	kind *permits
}

// Permits returns the semaphore with this name. It has no permits before TrySetPermits.
func (l *Locker) Permits(name string) *Permits {
	k := &permits{
		locker: l, channel: prefixed("redisson_sc", name), keys: []string{name, suffixed(name, "timeout")},
		take: l.scripts["permit_take"], give: l.scripts["permit_give"], prolong: l.scripts["permit_extend"],
		count: l.scripts["permit_count"],
	}
	lk := l.newLock(name, k, traits{})
	lk.newOwner = func() Owner {
		id := uuid.New()
		return Owner{hex.EncodeToString(id[:])}
	}
	return &Permits{lock: lk, set: l.scripts["semaphore_set"], kind: k}
}

// TrySetPermits sets the number of permits to n, unless the semaphore exists; set reports
// whether it did.
func (p *Permits) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	if p.lock.err != nil {
		return false, p.lock.err
	}
	return p.kind.locker.trySet(ctx, initial{script: p.set, name: p.lock.name, value: n, channel: p.kind.channel, message: n})
}

// Lock takes one permit, waiting for it until ctx is done.
func (p *Permits) Lock(ctx context.Context, options ...Option) (*Hold, error) {
	return p.lock.Lock(ctx, options...)
}

// TryLock takes one permit, or returns ErrNotAcquired.
func (p *Permits) TryLock(ctx context.Context, options ...Option) (*Hold, error) {
	return p.lock.TryLock(ctx, options...)
}

// Available returns the number of permits that could be taken now, including those of dead
// holders; 0 if the semaphore does not exist. It changes nothing.
func (p *Permits) Available(ctx context.Context) (int64, error) {
	if p.lock.err != nil {
		return 0, p.lock.err
	}
	r, err := p.kind.locker.run(ctx, p.kind.count, 0, p.kind.keys)
	if err != nil {
		return 0, err
	}
	return r.n, nil
}

// permits is the kind of Permits.
type permits struct {
	locker                     *Locker
	channel                    string
	keys                       []string
	take, give, prolong, count *script
}

// member returns the id as it is stored in the sorted set: 16 raw bytes.
func (c claim) member() []byte {
	raw, err := hex.DecodeString(c.owner.id)
	if err != nil {
		return []byte(c.owner.id)
	}
	return raw
}

func (k *permits) attempt(ctx context.Context, c claim) (answer, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return answer{}, err
	}
	r, err := k.locker.run(ctx, k.take, c.replicas, k.keys, c.member(), c.lease.Milliseconds(), verb, k.channel)
	if err != nil {
		return answer{}, err
	}
	return r.answer(k.locker.hub, k.channel), nil
}

func (k *permits) extend(ctx context.Context, c claim) (bool, error) {
	r, err := k.locker.run(ctx, k.prolong, 0, k.keys, c.member(), c.lease.Milliseconds())
	return r.done, err
}

func (k *permits) release(ctx context.Context, c claim) (released, error) {
	verb, err := k.locker.publish(ctx)
	if err != nil {
		return released{}, err
	}
	r, err := k.locker.run(ctx, k.give, 0, k.keys, c.member(), verb, k.channel)
	return released{held: r.done}, err
}
