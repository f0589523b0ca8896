package lock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A Semaphore has permits that any process may acquire and release. It is compatible with
// Redisson's RSemaphore. Permits of a process that died stay taken; those of a
// [Locker.ExpirableSemaphore] expire. All methods are safe for concurrent use.
//
// Each call leaves a mark, "{name}:weir_taken:<id>", for half a minute. It reveals
// whether a call whose reply was lost has been executed, so that it is not counted twice. If
// Redis cannot be reached for longer than that, its permits may stay taken.
type Semaphore struct {
	lock *Lock
	kind *scripted
	add  request
}

// Semaphore returns the semaphore with this name. It has no permits before TrySetPermits.
func (l *Locker) Semaphore(name string) *Semaphore {
	channel := prefixedKey("redisson_sc", name)
	k := &scripted{
		locker: l, channels: []string{channel},
		take: l.marked("semaphore_take", name, "weir_taken:", permitCount, leaseTime),
		give: l.marked("semaphore_undo", name, "weir_taken:", permitCount, publishVerb, channel),
	}
	add := l.marked("semaphore_give", name, "weir_taken:", permitCount, leaseTime, publishVerb, channel)
	return &Semaphore{lock: l.newLock(name, k, traits{}), kind: k, add: add}
}

// marked returns the request of a script for name that leaves a mark of its owner, which is one call.
func (l *Locker) marked(script, name, suffix string, args ...any) request {
	q, mark := l.request(script, []string{name}, args...), suffixedKey(name, suffix)
	q.own = func(c callParams) string { return mark + c.owner.id }
	return q
}

// TrySetPermits creates the semaphore with n permits if it does not exist, and reports
// whether it did.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	return s.lock.trySet(ctx, n, s.kind.channels[0], n)
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
	return s.lock.callOnce(ctx, s.add, callParams{permits: n})
}

// Available returns the number of available permits; 0 if the semaphore does not exist.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	return s.lock.readNumber(ctx)
}

// markTTL is the time to live of the marks of calls: longer than a call is repeated, except by a waiter during an outage.
const markTTL = 30 * time.Second

// An ExpirableSemaphore is a semaphore whose permits expire when their holder dies. It is
// compatible with Redisson's RPermitExpirableSemaphore. Each permit is a [Hold], which is
// renewed while it is held unless it was acquired with WithLease. Its Owner is the ID of
// the permit, 32 hexadecimal digits, as in Redisson.
//
// It is not reentrant: each permit is one hold, and WithOwner returns ErrNotReentrant.
type ExpirableSemaphore struct {
	lock *Lock
	kind *scripted
}

// ExpirableSemaphore returns the semaphore with this name. It has no permits before
// TrySetPermits.
func (l *Locker) ExpirableSemaphore(name string) *ExpirableSemaphore {
	keys, channel := []string{name, suffixedKey(name, "timeout")}, prefixedKey("redisson_sc", name)
	k := &scripted{
		locker: l, channels: []string{channel},
		take:    l.request("permit_take", keys, permitID, leaseTime, publishVerb, channel),
		prolong: l.request("permit_extend", keys, permitID, leaseTime),
		give:    l.request("permit_give", keys, permitID, publishVerb, channel),
		look:    l.request("permit_count", keys),
	}
	lk := l.newLock(name, k, traits{})
	lk.newOwner = func() Owner {
		id := uuid.New()
		return Owner{hex.EncodeToString(id[:])}
	}
	return &ExpirableSemaphore{lock: lk, kind: k}
}

// TrySetPermits creates the semaphore with n permits if it does not exist, and reports
// whether it did.
func (e *ExpirableSemaphore) TrySetPermits(ctx context.Context, n int64) (set bool, err error) {
	return e.lock.trySet(ctx, n, e.kind.channels[0], n)
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
	r, err := e.lock.locker.send(ctx, e.kind.look, callParams{})
	return r.n, err
}

// trySet sets a number and publishes the message if the number does not exist, and
// reports whether it did. A lost reply is an error.
func (l *Lock) trySet(ctx context.Context, n int64, channel string, message int64) (bool, error) {
	switch {
	case l.err != nil:
		return false, l.err
	case n < 1:
		return false, fmt.Errorf("set %s: %d is below 1", l.name, n)
	}
	r, err := l.call(ctx, l.locker.request("semaphore_set", []string{l.name}, n, publishVerb, channel, message))
	return r.done, err
}

// call sends a request that no owner makes, within the call timeout.
func (l *Lock) call(ctx context.Context, q request) (reply, error) {
	if !l.locker.beginCall() {
		return reply{}, ErrClosed
	}
	defer l.locker.endCall()
	ctx, cancel := context.WithTimeout(ctx, l.locker.callTimeout)
	defer cancel()
	return l.locker.send(ctx, q, callParams{})
}

// callOnce sends a request with a mark and, if the reply is lost, once more with the
// same mark, by which the script detects the repetition. Like Unlock it works after ctx has
// ended, within two call timeouts.
func (l *Lock) callOnce(ctx context.Context, q request, c callParams) error {
	switch {
	case l.err != nil:
		return l.err
	case !l.locker.beginCall():
		return ErrClosed
	}
	defer l.locker.endCall()
	c.owner, c.lease = l.locker.NewOwner(), markTTL
	var err error
	for range 2 {
		call, cancel := l.locker.callContext(ctx)
		_, err = l.locker.send(call, q, c)
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

// A Latch is a count-down latch, compatible with Redisson's RCountDownLatch. It is open
// when its count is 0. All methods are safe for concurrent use.
type Latch struct {
	lock    *Lock
	channel string
	down    request
}

// Latch returns the latch with this name. It is open until TrySetCount. Its channel has
// braces around name even if name contains some, so a name with a hash tag, which would
// put the channel into another slot, is ErrInvalidName in a cluster.
func (l *Locker) Latch(name string) *Latch {
	channel := "redisson_countdownlatch__channel__{" + name + "}"
	lk := l.newLock(name, &latch{l, name, channel}, traits{noLocalQueue: true})
	if _, cluster := l.rdb.(*redis.ClusterClient); cluster && lk.err == nil && strings.ContainsAny(name, "{}") {
		lk.err = fmt.Errorf("%w: %q has braces; the name of a latch in a cluster must have none", ErrInvalidName, name)
	}
	down := l.marked("latch_down", name, "weir_counted:", leaseTime, publishVerb, channel)
	return &Latch{lock: lk, channel: channel, down: down}
}

// TrySetCount sets the count to n if the latch is open, and reports whether it did.
func (t *Latch) TrySetCount(ctx context.Context, n int64) (set bool, err error) {
	return t.lock.trySet(ctx, n, t.channel, 1)
}

// CountDown decreases the count by one; at 0 the latch opens. If the reply is lost, the
// call is sent again, but has an effect only once.
func (t *Latch) CountDown(ctx context.Context) error {
	return t.lock.callOnce(ctx, t.down, callParams{})
}

// Count returns the current count; 0 if the latch is open.
func (t *Latch) Count(ctx context.Context) (int64, error) {
	return t.lock.readNumber(ctx)
}

// Await waits until the latch is open or ctx is done.
func (t *Latch) Await(ctx context.Context) error {
	a := &acquisition{locker: t.lock.locker, lock: t.lock}
	a.accept = func(context.Context, outcome) error { return nil }
	return a.run(ctx, (*acquisition).wait)
}

// latch is the kind of Latch. It can be acquired while the latch is open.
type latch struct {
	locker        *Locker
	name, channel string
}

func (l *latch) attempt(ctx context.Context, _ callParams) (attemptResult, error) {
	n, err := l.locker.rdb.Exists(ctx, l.name).Result()
	if err != nil {
		return attemptResult{}, fmt.Errorf("read %s: %w", l.name, err)
	}
	return attemptResult{held: n == 0, hub: l.locker.hub, channel: l.channel}, nil
}

func (l *latch) extend(context.Context, callParams) (bool, error) { return true, nil }

func (l *latch) release(context.Context, callParams) (releaseResult, error) {
	return releaseResult{held: true}, nil
}
