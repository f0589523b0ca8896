package lock

import (
	"fmt"
	"time"
)

const (
	// DefaultLease is how long a lock outlives a process that died, and the
	// watchdog's lease as long as nothing else is set. Redisson has the same.
	DefaultLease = 30 * time.Second
	// MinLease is the shortest lease that can be asked for.
	MinLease = 20 * time.Millisecond

	defaultPoll = 5 * time.Second
	defaultCall = 3 * time.Second
)

// A LockerOption changes a Locker for its whole life.
type LockerOption func(*Locker)

// WithWatchdog sets the lease of locks that are taken without WithLease; they
// are renewed every third of it. It is DefaultLease otherwise, and at least
// MinLease.
func WithWatchdog(lease time.Duration) LockerOption {
	return func(l *Locker) { l.lease = max(lease, MinLease) }
}

// WithPollInterval sets the longest time for which a waiter trusts that it would hear
// of a release: it tries again after a random part, a fifth to the whole, of it.
// It is 5 s otherwise, which costs Redis a script call every 3 s for each lock
// that this process waits for.
func WithPollInterval(longest time.Duration) LockerOption {
	return func(l *Locker) { l.pollInterval = max(longest, 5*time.Millisecond) }
}

// WithCallTimeout sets the time after which a call to Redis counts as failed,
// its outcome unknown; 3 s otherwise. A client whose own timeouts are shorter
// fails sooner.
func WithCallTimeout(d time.Duration) LockerOption {
	return func(l *Locker) { l.callTimeout = max(d, time.Millisecond) }
}

// Channels says which kind of pub/sub channels carry releases in a cluster. All
// programs that share a lock must agree, or waiters only notice by polling.
type Channels int

const (
	// AutoChannels are sharded in a cluster whose servers know them (Redis 7),
	// as in Redisson since 3.22.
	AutoChannels Channels = iota
	// ShardedChannels use SPUBLISH and SSUBSCRIBE.
	ShardedChannels
	// PlainChannels use PUBLISH and SUBSCRIBE: every message goes to every node.
	PlainChannels
)

// WithChannels sets the kind of channels; it has no effect outside a cluster,
// where channels are always plain.
func WithChannels(c Channels) LockerOption {
	return func(l *Locker) { l.channels = c }
}

// A LockOption changes one acquisition.
type LockOption func(*lockOptions)

// A lockOptions is what the options of one acquisition ask for.
type lockOptions struct {
	lease    time.Duration
	hasLease bool // the lease was asked for; otherwise it is the watchdog's
	owner    Owner
	replicas int
}

// WithLease takes the lock for d from the moment it is asked for, without
// renewal: the hold's context ends with ErrLost when d is over, and Extend is
// the only way to keep the lock. d is at least MinLease.
func WithLease(d time.Duration) LockOption {
	return func(r *lockOptions) { r.lease, r.hasLease = d, true }
}

// WithOwner takes the lock in the name of o: if o holds it already through the
// same Locker, this is one more hold of the same. One owner must not be used by
// two goroutines at once: they would not exclude each other. Kinds that cannot
// be entered twice refuse it with ErrNotReentrant, and so does a lock of which o
// holds a part together with other things, as in [Multi] or [Locker.Group].
func WithOwner(o Owner) LockOption {
	return func(r *lockOptions) { r.owner = o }
}

// WithReplicas gives the lock back and returns ErrNotSynced unless n replicas
// confirm within a third of the call timeout that they have it. That makes losing
// the lock in a failover less likely, not impossible: only a fencing token that
// the guarded resource checks does that.
func WithReplicas(n int) LockOption {
	return func(r *lockOptions) { r.replicas = n }
}

// parseOptions reads the options.
func parseOptions(options []LockOption) (lockOptions, error) {
	var r lockOptions
	for _, o := range options {
		o(&r)
	}
	if r.hasLease && r.lease < MinLease {
		return r, fmt.Errorf("%w: %v is below %v", ErrInvalidLease, r.lease, MinLease)
	}
	return r, nil
}
