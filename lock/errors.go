package lock

import "errors"

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
