package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Lockable can be locked. It is implemented by *Lock of any kind and by
// *ExpirableSemaphore.
type Lockable interface {
	// Lock waits for the lock until ctx is done.
	Lock(ctx context.Context, options ...LockOption) (*Hold, error)
	// TryLock tries once to acquire the lock.
	TryLock(ctx context.Context, options ...LockOption) (*Hold, error)
}

// A Lock is a lock with a kind and a name. It has no state of its own: all Locks of the
// same kind and name are the same lock. All methods are safe for concurrent use.
type Lock struct {
	locker    *Locker
	name      string
	namespace string // distinguishes locks that share a name but are held separately
	err       error  // set if the name is not valid
	kind      lockKind
	traits    traits
	// resources are the names of what an owner holds in Redis, if it is more than one.
	resources []string
	// newOwner returns the owner for an acquisition without WithOwner.
	newOwner func() Owner
}

// traits are the properties in which the kinds of locks differ.
type traits struct {
	// exclusive means that the lock has one owner at a time, so that waiters of this
	// process queue behind a local holder without calling Redis.
	exclusive bool
	// noLocalQueue means that all waiters of this process call Redis concurrently.
	noLocalQueue bool
	// queuesInRedis means that Redis has a queue of waiters, which a waiter that gives up
	// must leave.
	queuesInRedis bool
	// reentrant means that one owner may hold the lock several times.
	reentrant bool
}

// A lockKind implements one kind of lock by three script calls. Each of them may be executed
// twice or late without any further effect. If a call returns an error that is not a
// reply of the server, its outcome is unknown.
type lockKind interface {
	// attempt tries to acquire the lock. It succeeds if the owner holds the lock already.
	attempt(ctx context.Context, c callParams) (attemptResult, error)
	// extend makes the hold of c.owner last for at least c.lease from now. It returns
	// false if the owner holds nothing.
	extend(ctx context.Context, c callParams) (bool, error)
	// release sets the number of holds of c.owner to c.count. At 0 it releases the lock
	// and removes the owner from the queue of waiters.
	release(ctx context.Context, c callParams) (releaseResult, error)
}

// callParams are the parameters of the calls of a lockKind.
type callParams struct {
	owner    Owner
	count    int // number of holds of the owner after the call
	lease    time.Duration
	replicas int
	permits  int64 // of a semaphore
	willWait bool  // the owner waits if the lock is not free
}

// An attemptResult is the result of an attempt.
type attemptResult struct {
	held  bool
	token int64 // of a fenced lock; otherwise 0
	// wait is the time for which the lock is certainly not free unless a message on
	// channel says otherwise; 0 or less if it is unknown.
	wait    time.Duration
	hub     *hub
	channel string
}

// A releaseResult is the result of a release.
type releaseResult struct {
	held     bool  // the owner held the lock
	notified int64 // number of subscribers that received the message
}

// newLock returns a Lock and checks its name.
func (l *Locker) newLock(name string, k lockKind, t traits) *Lock {
	return &Lock{locker: l, name: name, err: checkName(name), kind: k, traits: t, newOwner: l.NewOwner}
}

// Name returns the name of the lock, which is also its main key in Redis.
func (l *Lock) Name() string { return l.name }

// Lock acquires the lock. It waits until ctx is done and then returns an error that
// matches ErrNotAcquired and the cause of ctx; nothing remains in Redis.
//
// If ctx is canceled during a call to Redis, Lock returns when the call ends, after at
// most the call timeout. A call ends at the deadline of ctx if the client was created
// with ContextTimeoutEnabled.
//
// Waiters of one process queue locally, and only the first one calls Redis. It tries
// again when the release is published, and otherwise after a random part of the poll
// interval. If the first call to Redis fails, Lock fails; later failures are retried.
func (l *Lock) Lock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return l.acquire(ctx, options, (*acquisition).wait)
}

// TryLock tries once to acquire the lock, in one round trip. It returns ErrNotAcquired if
// the lock is held by another owner.
func (l *Lock) TryLock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return l.acquire(ctx, options, (*acquisition).tryOnce)
}

func (l *Lock) acquire(ctx context.Context, options []LockOption, try strategy) (*Hold, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	return l.locker.acquire(ctx, l, options, try)
}

// check returns an error if l or ctx is nil.
func (l *Lock) check(ctx context.Context) error {
	switch {
	case l == nil:
		return fmt.Errorf("%w: the lock is nil", ErrInvalidArgument)
	case ctx == nil:
		return fmt.Errorf("%w: the context is nil", ErrInvalidArgument)
	}
	return nil
}

// Errors of this package. Any other error reports that a call to Redis failed, or that
// its reply was not valid.
var (
	// ErrNotAcquired reports that another owner holds the lock. If a wait ended because
	// its context did, the error also matches the cause of the context.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrNotHeld reports that the hold was unlocked before.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost reports that the lease expired, or the lock was taken away, before Unlock.
	// Another owner may hold the lock.
	ErrLost = errors.New("lock lost")
	// ErrReleased is the cause of a hold's context after Unlock.
	ErrReleased = errors.New("lock released")
	// ErrNotSynced reports that too few replicas confirmed the lock within the call
	// timeout. The lock was released.
	ErrNotSynced = errors.New("lock not confirmed by enough replicas")
	// ErrNotReentrant reports that this kind of lock cannot be held twice by one owner.
	ErrNotReentrant = errors.New("lock not reentrant")
	// ErrClosed reports that the Locker is closed.
	ErrClosed = errors.New("locker closed")
	// ErrInvalidName reports that a name is empty, or that its braces would put the keys
	// of one lock into different cluster slots.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidLease reports that a lease is shorter than MinLease or longer than MaxLease.
	ErrInvalidLease = errors.New("invalid lease")
	// ErrInvalidArgument reports that a lock, a context or an option is nil.
	ErrInvalidArgument = errors.New("invalid argument")
)
