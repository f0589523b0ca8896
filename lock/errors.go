package lock

import "errors"

// Errors of this package. Any other error means that Redis could not be asked,
// or that it answered something no script of ours says.
var (
	// ErrNotAcquired reports that somebody else holds the lock. When a wait
	// ended because its context did, the error also matches the context's
	// cause.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrNotHeld reports that the hold was unlocked before: it can do nothing
	// more.
	ErrNotHeld = errors.New("lock not held")
	// ErrLost reports that the lease ended, or was taken away, before Unlock:
	// somebody else may hold the lock.
	ErrLost = errors.New("lock lost")
	// ErrReleased is the cause of a hold's context after Unlock.
	ErrReleased = errors.New("lock released")
	// ErrNotSynced reports that too few replicas confirmed the lock within the
	// time for one call; it was given back.
	ErrNotSynced = errors.New("lock not confirmed by enough replicas")
	// ErrNotReentrant reports that this kind of lock cannot be held twice by one
	// owner.
	ErrNotReentrant = errors.New("lock cannot be entered again")
	// ErrClosed reports that the Locker was closed.
	ErrClosed = errors.New("locker closed")
	// ErrInvalidName reports that a name is empty, or that its braces would put the
	// keys of one lock into different cluster slots.
	ErrInvalidName = errors.New("lock name not usable")
	// ErrInvalidLease reports that a lease is shorter than MinLease.
	ErrInvalidLease = errors.New("lease too short")
)
