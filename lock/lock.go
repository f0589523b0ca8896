package lock

import (
	"context"
	"time"
)

// Lockable is implemented by locks of any kind, such as *Lock.
type Lockable interface {
	// Lock waits for the lock until ctx is done.
	Lock(ctx context.Context, options ...Option) (*Hold, error)
	// TryLock makes one attempt.
	TryLock(ctx context.Context, options ...Option) (*Hold, error)
}

// A Lock is a lock of one kind with one name. It has no state: any number of Locks with the
// same kind and name are the same lock. All methods are safe for concurrent use.
type Lock struct {
	locker *Locker
	name   string
	role   string // distinguishes locks with the same name but separate holds
	err    error  // what is wrong with the name
	kind   kind
	traits traits
	// things are the names in Redis that an owner holds, if there are several.
	things []string
	// newOwner returns the owner of an acquisition without WithOwner.
	newOwner func() Owner
}

// traits are differences between kinds that require different treatment.
type traits struct {
	// exclusive: only one holder in this process, so that local waiters wait for it without
	// asking Redis.
	exclusive bool
	// crowds: all waiters of this process contend; they do not queue locally.
	crowds bool
	// queues: Redis keeps the order of waiters, and must be told when one leaves.
	queues bool
	// enters: the lock is reentrant.
	enters bool
}

// A kind implements one kind of lock by three script calls. Each of them may be executed
// twice, or late, with the same effect as once. If the error of a call is not a reply of
// the server, its outcome is unknown.
type kind interface {
	// attempt tries to acquire the lock. It is granted to a claim that already holds it.
	attempt(ctx context.Context, c claim) (answer, error)
	// extend extends the hold of c.owner to c.lease from now; false means that c.owner does
	// not hold the lock.
	extend(ctx context.Context, c claim) (bool, error)
	// release sets the number of holds of c.owner to c.count; 0 releases the lock, and
	// leaves the queue.
	release(ctx context.Context, c claim) (released, error)
}

// A claim holds the arguments of a call of a kind.
type claim struct {
	owner    Owner
	count    int // number of holds of the owner after the call
	lease    time.Duration
	replicas int
	permits  int64 // of a semaphore
	patient  bool  // the owner will wait if it is refused
}

// An answer is the result of an attempt.
type answer struct {
	held  bool
	token int64 // of a fenced lock; otherwise 0
	// wait is the time for which the lock is not free unless a message arrives on channel;
	// 0 or less if unknown.
	wait    time.Duration
	hub     *hub
	channel string
}

// released is the result of a release.
type released struct {
	held     bool  // the lock was held
	notified int64 // number of listeners that received the release
}

// newLock returns a lock whose name has not been checked yet.
func (l *Locker) newLock(name string, k kind, t traits) *Lock {
	return &Lock{locker: l, name: name, err: checkName(name), kind: k, traits: t, newOwner: l.NewOwner}
}

// Name returns the name of the lock, which is its main key in Redis.
func (lk *Lock) Name() string { return lk.name }

// Lock waits for the lock until ctx is done; then it returns an error that matches
// ErrNotAcquired and the cause of ctx, and leaves nothing in Redis.
//
// If ctx is canceled during a call to Redis, Lock waits for the end of the call, at most
// the call timeout. A deadline of ctx ends the call, if the client was created with
// ContextTimeoutEnabled.
//
// Waiters of one process are served in FIFO order, and only the first one contends. It
// subscribes to releases, and tries again after a random part of WithPoll's time otherwise.
// If the first attempt gets no reply from Redis, Lock fails; if the connection is lost
// later, it continues to wait.
func (lk *Lock) Lock(ctx context.Context, options ...Option) (*Hold, error) {
	return lk.locker.acquire(ctx, lk, options, (*acquisition).wait)
}

// TryLock makes one attempt, in one round trip. It returns ErrNotAcquired if another owner
// holds the lock.
func (lk *Lock) TryLock(ctx context.Context, options ...Option) (*Hold, error) {
	return lk.locker.acquire(ctx, lk, options, (*acquisition).once)
}
