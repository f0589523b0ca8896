package lock

import "errors"

// Errors of this package. Any other error comes from the call to Redis, or is an unexpected
// reply.
var (
	// ErrNotAcquired reports that another owner holds the lock. If the context ended while
	// waiting, the error also matches the context's cause.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrNotHeld reports that the hold was already unlocked.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost reports that the lease ended, or that the lock was taken away, before Unlock:
	// another owner may hold the lock.
	ErrLost = errors.New("lock lost")
	// ErrReleased is the cause of a hold's context after Unlock.
	ErrReleased = errors.New("lock released")
	// ErrNotSynced reports that too few replicas acknowledged the lock in time; it was
	// released.
	ErrNotSynced = errors.New("lock not confirmed by enough replicas")
	// ErrReentrant reports that this kind of lock is not reentrant.
	ErrReentrant = errors.New("lock cannot be entered again")
	// ErrClosed reports that the Locker was closed.
	ErrClosed = errors.New("locker closed")
	// ErrBadName reports an empty name, or one whose braces would put the keys of one lock
	// into different cluster slots.
	ErrBadName = errors.New("lock name not usable")
	// ErrBadLease reports a lease shorter than MinLease.
	ErrBadLease = errors.New("lease too short")
)
