package lock

import (
	"fmt"
	"time"
)

const (
	// DefaultLease is the default lease of the watchdog: a lock is released within this
	// time after its process has died. Redisson has the same default.
	DefaultLease = 30 * time.Second
	// MinLease is the minimum lease.
	MinLease = 20 * time.Millisecond

	defaultPoll = 5 * time.Second
	defaultCall = 3 * time.Second
)

// A Setting configures a Locker.
type Setting func(*Locker)

// WithWatchdog sets the lease of locks that are acquired without WithLease; they are
// renewed every third of it. The default is DefaultLease, the minimum MinLease.
func WithWatchdog(lease time.Duration) Setting {
	return func(l *Locker) { l.lease = max(lease, MinLease) }
}

// WithPoll sets the maximum time for which a waiter relies on messages: it tries again
// after a random part, a fifth to the whole, of it. The default is 5 s, which costs Redis a
// script call every 3 s for each lock that this process waits for.
func WithPoll(longest time.Duration) Setting {
	return func(l *Locker) { l.poll = max(longest, 5*time.Millisecond) }
}

// WithCallTimeout sets the timeout of a call to Redis, after which its outcome is unknown;
// the default is 3 s. Shorter timeouts of the client take precedence.
func WithCallTimeout(d time.Duration) Setting {
	return func(l *Locker) { l.call = max(d, time.Millisecond) }
}

// Channels is the kind of Pub/Sub channels for releases in a cluster. All programs that
// share a lock must use the same kind; otherwise waiters notice releases only by polling.
type Channels int

const (
	// AutoChannels uses sharded channels in a cluster whose servers support them (Redis 7),
	// as Redisson does since 3.22.
	AutoChannels Channels = iota
	// ShardedChannels uses SPUBLISH and SSUBSCRIBE.
	ShardedChannels
	// PlainChannels uses PUBLISH and SUBSCRIBE: every message goes to every node.
	PlainChannels
)

// WithChannels sets the kind of channels in a cluster; without a cluster, channels are
// always plain.
func WithChannels(c Channels) Setting {
	return func(l *Locker) { l.channels = c }
}

// An Option configures one acquisition.
type Option func(*request)

// A request holds the options of one acquisition.
type request struct {
	lease    time.Duration
	leased   bool // WithLease was given; otherwise the lease is that of the watchdog
	owner    Owner
	replicas int
}

// WithLease acquires the lock for d from the moment of the request, without renewal: the
// hold's context ends with ErrLost after d, unless Extend is called. d must be at least
// MinLease.
func WithLease(d time.Duration) Option {
	return func(r *request) { r.lease, r.leased = d, true }
}

// WithOwner acquires the lock for o: if o already holds it through the same Locker, this
// adds a hold. Two goroutines must not use the same owner at once: they would not exclude
// each other. Kinds that are not reentrant return ErrReentrant, and so does a lock of which
// o holds a part together with others, as in [Multi] or [Locker.Group].
func WithOwner(o Owner) Option {
	return func(r *request) { r.owner = o }
}

// WithReplicas releases the lock and returns ErrNotSynced unless n replicas acknowledge it
// within a third of the call timeout. This makes it less likely to lose the lock in a
// failover, but not impossible: only fencing tokens protect a resource in that case.
func WithReplicas(n int) Option {
	return func(r *request) { r.replicas = n }
}

// ask evaluates the options.
func ask(options []Option) (request, error) {
	var r request
	for _, o := range options {
		o(&r)
	}
	if r.leased && r.lease < MinLease {
		return r, fmt.Errorf("%w: %v is below %v", ErrBadLease, r.lease, MinLease)
	}
	return r, nil
}
