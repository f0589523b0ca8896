package lock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A Semaphore has permits that any process may acquire and release. It is compatible with
// Redisson's RSemaphore. Permits of a process that died stay taken; those of a
// [Locker.ExpirableSemaphore] expire. All methods are safe for concurrent use.
//
// Each call leaves a mark, "{name}:weir_taken:<id>", for half a minute. It reveals
// whether a call whose reply was lost has been executed, so that it is never counted
// twice.
type Semaphore struct {
	lock *Lock
	kind *semaphore
}

// Semaphore returns the semaphore with this name. It has no permits before TrySetPermits.
func (l *Locker) Semaphore(name string) *Semaphore {
	k := &semaphore{
		locker: l, name: name, channel: prefixedKey("redisson_sc", name), mark: suffixedKey(name, "weir_taken:"),
		take: l.scripts["semaphore_take"], undo: l.scripts["semaphore_undo"],
		give: l.scripts["semaphore_give"], set: l.scripts["semaphore_set"],
	}
	return &Semaphore{lock: l.newLock(name, k, traits{}), kind: k}
}

// TrySetPermits creates the semaphore with n permits if it does not exist, and reports
// whether it did.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	if s.lock.err != nil {
		return false, s.lock.err
	}
	return s.lock.locker.trySet(ctx, initialValue{script: s.kind.set, name: s.lock.name, value: n, channel: s.kind.channel, message: n})
}

// Acquire acquires n permits, waiting until ctx is done. Callers of one process are
// served in order, so that a large request is not starved.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).wait)
}

// TryAcquire acquires n permits, or acquires none and returns ErrNotAcquired.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) error {
	return s.acquire(ctx, n, (*acquisition).tryOnce)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, try strategy) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: cannot acquire %d permits; the minimum is 1", s.lock.name, n)
	}
	l := s.lock.locker
	a := &acquisition{locker: l, lock: s.lock, params: callParams{owner: l.NewOwner(), permits: n, lease: markTTL}}
	a.accept = func(context.Context, outcome) error { return nil }
	return a.run(ctx, try)
}

// Release adds n permits, whether or not they were acquired before. If the reply is lost,
// the call is sent again, but has an effect only once.
func (s *Semaphore) Release(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("semaphore %s: cannot release %d permits; the minimum is 1", s.lock.name, n)
	}
	if s.lock.err != nil {
		return s.lock.err
	}
	l := s.lock.locker
	return l.callWithID(ctx, func(ctx context.Context, verb, id string) error {
		_, err := l.run(ctx, s.kind.give, 0, []string{s.lock.name, s.kind.mark + id}, n, markTTL.Milliseconds(), verb, s.kind.channel)
		return err
	})
}

// Available returns the number of available permits; 0 if the semaphore does not exist.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return s.lock.readNumber(ctx)
}

// markTTL is the time to live of the marks of calls: longer than any call is repeated.
const markTTL = 30 * time.Second

// semaphore is the kind of Semaphore. An owner is one call that acquires permits.
type semaphore struct {
	locker                *Locker
	name, channel, mark   string
	take, undo, give, set *script
}

func (s *semaphore) attempt(ctx context.Context, c callParams) (attemptResult, error) {
	r, err := s.locker.run(ctx, s.take, c.replicas, []string{s.name, s.mark + c.owner.id}, c.permits, c.lease.Milliseconds())
	if err != nil {
		return attemptResult{}, err
	}
	return attemptResult{held: r.done, hub: s.locker.hub, channel: s.channel}, nil
}

// extend does nothing: permits do not expire.
func (s *semaphore) extend(context.Context, callParams) (bool, error) { return true, nil }

func (s *semaphore) release(ctx context.Context, c callParams) (releaseResult, error) {
	verb, err := s.locker.publishCommand(ctx)
	if err != nil {
		return releaseResult{}, err
	}
	r, err := s.locker.run(ctx, s.undo, 0, []string{s.name, s.mark + c.owner.id}, c.permits, verb, s.channel)
	return releaseResult{held: r.done}, err
}

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

// An initialValue is the value that trySet sets, and the message that it publishes.
type initialValue struct {
	script  *script
	name    string
	value   int64
	channel string
	message int64
}

// trySet sets a number and publishes the message if the number does not exist, and
// reports whether it did. A lost reply is an error.
func (l *Locker) trySet(ctx context.Context, i initialValue) (bool, error) {
	if i.value < 1 {
		return false, fmt.Errorf("set %s: %d is below 1", i.name, i.value)
	}
	if !l.beginCall() {
		return false, ErrClosed
	}
	defer l.endCall()
	ctx, cancel := context.WithTimeout(ctx, l.callTimeout)
	defer cancel()
	verb, err := l.publishCommand(ctx)
	if err != nil {
		return false, err
	}
	r, err := l.run(ctx, i.script, 0, []string{i.name}, i.value, verb, i.channel, i.message)
	return r.done, err
}

// callWithID calls send with a unique ID and, if the reply is lost, once more with the
// same ID, by which the script detects the repetition. Like Unlock it works after ctx has
// ended, within two call timeouts.
func (l *Locker) callWithID(ctx context.Context, send func(ctx context.Context, verb, id string) error) error {
	if !l.beginCall() {
		return ErrClosed
	}
	defer l.endCall()
	id := l.NewOwner().id
	var err error
	for range 2 {
		call, cancel := l.callContext(ctx)
		var verb string
		if verb, err = l.publishCommand(call); err == nil {
			err = send(call, verb, id)
		}
		cancel()
		if err == nil || replied(err) {
			break
		}
	}
	return err
}

// readNumber returns the number stored under the name of l; 0 if there is none.
func (l *Lock) readNumber(ctx context.Context) (int64, error) {
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.locker.rdb.Get(ctx, l.name).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", l.name, err)
	}
	return n, nil
}
