package lock

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"
)

// An ExpirableSemaphore is a semaphore whose permits expire when their holder dies. It is
// compatible with Redisson's RPermitExpirableSemaphore. Each permit is a [Hold], which is
// renewed while it is held unless it was acquired with WithLease. Its Owner is the ID of
// the permit, 32 hexadecimal digits, as in Redisson.
//
// It is not reentrant: each permit is one hold, and WithOwner returns ErrNotReentrant.
type ExpirableSemaphore struct {
	lock *Lock
	set  *script
	kind *permits
}

// ExpirableSemaphore returns the semaphore with this name. It has no permits before
// TrySetPermits.
func (l *Locker) ExpirableSemaphore(name string) *ExpirableSemaphore {
	k := &permits{
		locker: l, channel: prefixedKey("redisson_sc", name), keys: []string{name, suffixedKey(name, "timeout")},
		take: l.scripts["permit_take"], give: l.scripts["permit_give"], prolong: l.scripts["permit_extend"],
		count: l.scripts["permit_count"],
	}
	lk := l.newLock(name, k, traits{})
	lk.newOwner = func() Owner {
		id := uuid.New()
		return Owner{hex.EncodeToString(id[:])}
	}
	return &ExpirableSemaphore{lock: lk, set: l.scripts["semaphore_set"], kind: k}
}

// TrySetPermits creates the semaphore with n permits if it does not exist, and reports
// whether it did.
func (e *ExpirableSemaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	if e.lock.err != nil {
		return false, e.lock.err
	}
	return e.kind.locker.trySet(ctx, initialValue{script: e.set, name: e.lock.name, value: n, channel: e.kind.channel, message: n})
}

// Lock acquires one permit, waiting until ctx is done.
func (e *ExpirableSemaphore) Lock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return e.lock.Lock(ctx, options...)
}

// TryLock acquires one permit, or returns ErrNotAcquired.
func (e *ExpirableSemaphore) TryLock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return e.lock.TryLock(ctx, options...)
}

// Available returns the number of available permits, including expired ones; 0 if the
// semaphore does not exist. It changes nothing.
func (e *ExpirableSemaphore) Available(ctx context.Context) (int64, error) {
	if e.lock.err != nil {
		return 0, e.lock.err
	}
	r, err := e.kind.locker.run(ctx, e.kind.count, 0, e.kind.keys)
	if err != nil {
		return 0, err
	}
	return r.n, nil
}

// permits is the kind of ExpirableSemaphore.
type permits struct {
	locker                     *Locker
	channel                    string
	keys                       []string
	take, give, prolong, count *script
}

// member returns the ID of a permit as it is stored in the sorted set: 16 raw bytes.
func (c callParams) member() []byte {
	raw, err := hex.DecodeString(c.owner.id)
	if err != nil {
		return []byte(c.owner.id)
	}
	return raw
}

func (p *permits) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	verb, err := p.locker.publishCommand(ctx)
	if err != nil {
		return attemptResult{}, err
	}
	r, err := p.locker.run(ctx, p.take, c.replicas, p.keys, c.member(), c.lease.Milliseconds(), verb, p.channel)
	if err != nil {
		return attemptResult{}, err
	}
	return r.attemptResult(p.locker.hub, p.channel), nil
}

func (p *permits) extend(ctx context.Context, c callParams) (bool, error) {
	r, err := p.locker.run(ctx, p.prolong, 0, p.keys, c.member(), c.lease.Milliseconds())
	return r.done, err
}

func (p *permits) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := p.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := p.locker.run(ctx, p.give, 0, p.keys, c.member(), verb, p.channel)
	return releaseResult{held: r.done}, err
}
