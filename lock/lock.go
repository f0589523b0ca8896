package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	// publishesForce means that ForceUnlock is published on the channel of the lock.
	publishesForce bool
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
	permits  int64         // of a semaphore
	willWait bool          // the owner waits if the lock is not free
	timeout  time.Duration // of its wait; 0: none
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
	return l.acquire(ctx, options, (*acquisition).wait, MaxLease)
}

// TryLock tries once to acquire the lock, in one round trip. It returns ErrNotAcquired if
// the lock is held by another owner, or after 3 s if Lock waits for it with the same owner.
func (l *Lock) TryLock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return l.acquire(ctx, options, (*acquisition).tryOnce, defaultCall)
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

// checkName returns an error that wraps ErrInvalidName unless every key and channel
// derived from name hashes to the slot of name itself. A valid name has either no braces,
// or its first "{" starts a hash tag that is closed and not empty.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	}
	_, rest, open := strings.Cut(name, "{")
	if !open {
		if strings.IndexByte(name, '}') >= 0 {
			return fmt.Errorf("%w: %q has a } without a {; leave braces out", ErrInvalidName, name)
		}
		return nil
	}
	if strings.IndexByte(rest, '}') < 1 {
		return fmt.Errorf("%w: the hash tag of %q is empty or not closed; write {tag} or leave braces out",
			ErrInvalidName, name)
	}
	return nil
}

// hasHashTag reports whether name has a hash tag, which determines its cluster slot.
func hasHashTag(name string) bool { return strings.IndexByte(name, '{') >= 0 }

// tagged returns name with a hash tag: its own or, if it has none, the whole of it.
func tagged(name string) string {
	if hasHashTag(name) {
		return name
	}
	return "{" + name + "}"
}

// prefixedKey returns the key or channel "prefix:{name}", which is in the slot of name.
func prefixedKey(prefix, name string) string { return prefix + ":" + tagged(name) }

// suffixedKey returns the key "{name}:suffix", which is in the slot of name.
func suffixedKey(name, suffix string) string { return tagged(name) + ":" + suffix }

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
