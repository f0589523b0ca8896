package lock

import (
	"context"
	"time"
)

// Lockable is what can be held: a *Lock of any kind.
type Lockable interface {
	// Lock waits for the lock until ctx is done.
	Lock(ctx context.Context, options ...LockOption) (*Hold, error)
	// TryLock asks once.
	TryLock(ctx context.Context, options ...LockOption) (*Hold, error)
}

// A Lock is one lock of one kind under one name. It keeps no state of its own:
// any number of Locks with the same kind and name are the same lock. All its
// methods are safe for concurrent use.
type Lock struct {
	locker    *Locker
	name      string
	namespace string // tells locks apart that share a name but not their holds
	err       error  // what is wrong with the name
	kind      kind
	traits    traits
	// resources is what an owner has of it in Redis, if that is not one thing.
	resources []string
	// newOwner makes the owner of an acquisition without WithOwner.
	newOwner func() Owner
}

// traits are what the kinds need to be treated differently in.
type traits struct {
	// exclusive: nobody else in this process can hold it at the same time, so
	// that local waiters queue behind the holder without asking Redis.
	exclusive bool
	// noLocalQueue: all waiters of this process contend, they do not queue here.
	noLocalQueue bool
	// queuesInRedis: Redis keeps the order of waiters, and must be told when one leaves.
	queuesInRedis bool
	// reentrant: one owner may hold it several times.
	reentrant bool
}

// A kind is what differs between locks: three script calls. Each of them may be
// executed twice, or late, without more effect than once. A call whose error is
// not a reply of the server has an unknown outcome.
type kind interface {
	// attempt asks for the lock. A claim that holds it already is granted it.
	attempt(ctx context.Context, c callParams) (attemptResult, error)
	// extend makes the hold of c.owner last c.lease from now, if that is later
	// than its end; false says that it holds nothing.
	extend(ctx context.Context, c callParams) (bool, error)
	// release leaves c.count holds to c.owner; 0 gives the lock back, and a
	// place in a queue as well.
	release(ctx context.Context, c callParams) (releaseResult, error)
}

// A callParams is what a call of a kind is about.
type callParams struct {
	owner    Owner
	count    int // how often the owner holds the lock after the call
	lease    time.Duration
	replicas int
	permits  int64 // of a semaphore
	willWait bool  // the owner waits if it is refused
}

// An attemptResult is what an attempt brought.
type attemptResult struct {
	held  bool
	token int64 // of a fenced lock; otherwise 0
	// wait is how long the lock is certainly not free unless channel says
	// otherwise; not above 0 when that is not known.
	wait    time.Duration
	hub     *hub
	channel string
}

// releaseResult is what a release brought.
type releaseResult struct {
	held     bool  // there was something to give back
	notified int64 // how many listeners heard that the lock is free
}

// newLock makes a lock whose name was not checked yet.
func (l *Locker) newLock(name string, k kind, t traits) *Lock {
	return &Lock{locker: l, name: name, err: checkName(name), kind: k, traits: t, newOwner: l.NewOwner}
}

// Name is the name of the lock, and its main key in Redis.
func (lk *Lock) Name() string { return lk.name }

// Lock waits for the lock until ctx is done; then it returns an error that
// matches ErrNotAcquired and the cause of ctx, and leaves nothing behind.
//
// A call to Redis that is in progress when ctx is cancelled is waited for, at
// most the call timeout; one that runs into the deadline of ctx ends with it, if
// the client was made with ContextTimeoutEnabled.
//
// Waiters of one process come in turn, one contends at a time. It listens for
// the release and otherwise asks Redis again after a random part of WithPollInterval's
// time. A Redis that cannot be asked at the first attempt makes Lock fail; one
// that is lost later is waited for.
func (lk *Lock) Lock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return lk.locker.acquire(ctx, lk, options, (*acquisition).wait)
}

// TryLock asks for the lock once, which is one round trip. It returns
// ErrNotAcquired when somebody else holds it.
func (lk *Lock) TryLock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return lk.locker.acquire(ctx, lk, options, (*acquisition).tryOnce)
}
