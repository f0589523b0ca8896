package lock

import (
	"fmt"
	"time"
)

const (
	// DefaultLease is the lease of locks that are acquired without WithLease, unless
	// WithWatchdog sets another one: the longest time until a lock is free after its
	// holder died. Redisson has the same default.
	DefaultLease = 30 * time.Second
	// MinLease is the shortest valid lease.
	MinLease = 20 * time.Millisecond
	// MaxLease is the longest valid lease.
	MaxLease = 366 * 24 * time.Hour

	defaultPoll = 5 * time.Second
	defaultCall = 3 * time.Second
)

// A LockerOption configures a Locker. It is passed to New.
type LockerOption func(*Locker)

// WithWatchdog sets the lease of locks that are acquired without WithLease. They are
// renewed every third of it. It is DefaultLease by default, at least MinLease, and at most MaxLease.
func WithWatchdog(lease time.Duration) LockerOption {
	return func(l *Locker) { l.lease = min(max(lease, MinLease), MaxLease) }
}

// WithPollInterval sets the longest time for which a waiter relies on the message of a
// release. It tries again after a random part of it, between a fifth and the whole. The
// default is 5 s, which costs Redis one script call every 3 s for each lock that this
// process waits for.
func WithPollInterval(longest time.Duration) LockerOption {
	return func(l *Locker) { l.pollInterval = max(longest, 5*time.Millisecond) }
}

// WithCallTimeout sets the time after which a call to Redis fails with an unknown
// outcome. The default is 3 s. A client with shorter timeouts fails earlier.
func WithCallTimeout(d time.Duration) LockerOption {
	return func(l *Locker) { l.callTimeout = max(d, time.Millisecond) }
}

// Channels selects the kind of pub/sub channels on which releases are published in a
// cluster. All programs that share a lock must use the same kind; otherwise waiters
// notice a release only by polling.
type Channels int

const (
	// AutoChannels uses sharded channels in a cluster whose servers support them (Redis
	// 7), as Redisson does since 3.22, and plain channels otherwise.
	AutoChannels Channels = iota
	// ShardedChannels uses SPUBLISH and SSUBSCRIBE.
	ShardedChannels
	// PlainChannels uses PUBLISH and SUBSCRIBE, which send every message to every node.
	PlainChannels
)

// WithChannels sets the kind of channels. It has no effect outside a cluster, where
// channels are always plain.
func WithChannels(c Channels) LockerOption {
	return func(l *Locker) { l.channels = c }
}

// A LockOption configures one acquisition. It is passed to Lock or TryLock.
type LockOption func(*lockOptions)

// lockOptions are the options of one acquisition.
type lockOptions struct {
	lease    time.Duration
	hasLease bool // lease is set; otherwise the default lease applies and is renewed
	owner    Owner
	replicas int
}

// WithLease acquires the lock with a lease of d, counted from the call, and without
// renewal. The hold's context ends with ErrLost when the lease is over; only Extend
// prolongs it. d is MinLease to MaxLease.
func WithLease(d time.Duration) LockOption {
	return func(r *lockOptions) { r.lease, r.hasLease = d, true }
}

// WithOwner acquires the lock for the owner o. If o holds it already through the same
// Locker, it gets one more hold. Goroutines that use the same owner do not exclude each
// other. It returns ErrNotReentrant for kinds that are not reentrant, and for a lock of
// which o already holds a part through another lock, as with [Multi] or [Locker.Group].
func WithOwner(o Owner) LockOption {
	return func(r *lockOptions) { r.owner = o }
}

// WithReplicas makes the acquisition fail with ErrNotSynced, and releases the lock,
// unless n replicas confirm within a third of the call timeout that they have it. It
// makes the loss of a lock in a failover less likely, but not impossible; only a fencing
// token that the guarded resource checks prevents harm.
func WithReplicas(n int) LockOption {
	return func(r *lockOptions) { r.replicas = n }
}

// parseOptions applies and checks the options.
func parseOptions(options []LockOption) (lockOptions, error) {
	var r lockOptions
	for _, o := range options {
		if o == nil {
			return r, fmt.Errorf("%w: an option is nil", ErrInvalidArgument)
		}
		o(&r)
	}
	if r.hasLease {
		return r, checkLease(r.lease)
	}
	return r, nil
}

// checkLease checks the bounds of a lease.
func checkLease(d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return fmt.Errorf("%w: %v is not between %v and %v", ErrInvalidLease, d, MinLease, MaxLease)
	}
	return nil
}
