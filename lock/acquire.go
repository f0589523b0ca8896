package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxErrorPause is the longest pause after an attempt to which Redis did not reply.
const maxErrorPause = 500 * time.Millisecond

// errOwnerBusy reports that the same owner acquires the lock, or a part of it, in another goroutine.
var errOwnerBusy = fmt.Errorf("%w: another acquisition by this owner is in progress", ErrNotAcquired)

// errGrantExpired reports that the lease had expired when the grant arrived.
var errGrantExpired = fmt.Errorf("%w: the lease expired before the reply arrived", ErrNotAcquired)

// An acquisition is the state of one call that acquires a lock.
type acquisition struct {
	locker *Locker
	lock   *Lock
	params callParams
	// autoRenew is true if the hold is renewed automatically.
	autoRenew bool
	// accept is called with a grant. If it returns errGrantExpired, waiting continues.
	accept  func(context.Context, outcome) error
	ticket  *ticket // position in the local queue, if there is one
	isSent  bool    // at least one attempt was sent
	mayHold bool    // an attempt with an unknown outcome may have acquired the lock
}

// A strategy is how an acquisition proceeds: tryOnce or wait.
type strategy func(*acquisition, context.Context) error

// An outcome is the result of one attempt.
type outcome struct {
	attemptResult
	sent time.Time // time before the call, from which the lease is counted
	err  error
}

// acquire acquires the lock. If it fails, nothing remains in Redis. timeout is how long it
// waits while others acquire the lock for the same owner.
func (l *Lock) acquire(ctx context.Context, options []LockOption, try strategy, timeout time.Duration) (*Hold, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	r, err := parseOptions(options)
	if err := errors.Join(l.err, err); err != nil {
		return nil, err
	}
	if r.owner != (Owner{}) { // others may use it too, and Redis would grant both the same hold
		limited, cancel := context.WithTimeoutCause(ctx, timeout, errOwnerBusy)
		defer cancel()
		for _, name := range slices.Compact(slices.Sorted(slices.Values(l.resourceNames()))) {
			here, done := Owner{name + " " + r.owner.id}, make(chan struct{})
			if err := l.locker.awaitPending(limited, here, done); err != nil {
				return nil, fmt.Errorf("lock %s: %w", l.name, err)
			}
			defer l.locker.endPending(here, done)
		}
	}
	g := holdKey{l.namespace, l.name, r.owner}
	for s := l.locker.session(ctx, g); s != nil && l.traits.reentrant; s = l.locker.session(ctx, g) {
		if hold, err := s.reenterAny(ctx, r); !errors.Is(err, ErrNotHeld) { // otherwise it was unlocked meanwhile
			return hold, err
		}
	}
	switch {
	case r.owner == (Owner{}):
		r.owner = l.newOwner()
	case !l.traits.reentrant:
		return nil, fmt.Errorf("lock %s: %w", l.name, ErrNotReentrant)
	case l.locker.overlaps(ctx, l, r.owner):
		return nil, fmt.Errorf("lock %s: %w: its owner holds a part of it through another lock; unlock that first",
			l.name, ErrNotReentrant)
	}
	var hold *Hold
	a := &acquisition{locker: l.locker, lock: l, autoRenew: !r.hasLease}
	a.params = callParams{owner: r.owner, count: 1, lease: cmp.Or(r.lease, l.locker.lease), replicas: r.replicas}
	a.accept = func(ctx context.Context, o outcome) error {
		hold, err = l.locker.openSession(ctx, a, o)
		return err
	}
	err = a.run(ctx, try)
	return hold, err
}

// run runs the strategy until a grant is accepted.
func (a *acquisition) run(ctx context.Context, try strategy) error {
	if a.lock.err != nil {
		return a.lock.err
	}
	if !a.locker.beginCall() {
		return ErrClosed
	}
	defer a.locker.endCall()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(a.locker.ctx, func() { cancel(ErrClosed) })
	defer stop()
	err := a.locker.awaitPending(ctx, a.params.owner, nil)
	if err == nil {
		if err = try(a, ctx); err != nil {
			a.undo()
		}
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", a.lock.name, err)
	}
	return nil
}

// tryOnce makes one attempt. It is the first of a waiter.
func (a *acquisition) tryOnce(ctx context.Context) error {
	o := a.attempt(ctx)
	switch {
	case o.err != nil:
		return o.err
	case o.held:
		return a.acceptGrant(ctx, o)
	case !a.params.willWait:
		return ErrNotAcquired
	}
	return a.waitForRelease(ctx, o)
}

// wait repeats attempts until ctx is done.
func (a *acquisition) wait(ctx context.Context) (err error) {
	a.params.willWait = true
	if !a.lock.traits.noLocalQueue {
		a.ticket, err = a.locker.localQueues.wait(ctx, a.lock.namespace+"\x00"+a.lock.name)
		if err != nil {
			return errors.Join(ErrNotAcquired, err)
		}
		defer func() {
			if a.ticket != nil {
				a.ticket.leave(0)
			}
		}()
	}
	return a.tryOnce(ctx)
}

// waitForRelease tries again whenever the lock may have become free: first when the
// subscription is confirmed, because an earlier release was not received, then at every
// message, and in any case after waitTime.
func (a *acquisition) waitForRelease(ctx context.Context, o outcome) error {
	var sub *subscription
	defer func() { sub.close() }()
	var lastErr error // of the last attempt
	for {
		if sub == nil || sub.isClosed() || sub.channel != o.channel {
			sub.close()
			if sub = subscribe(ctx, o); sub != nil {
				sleep(ctx, sub.ready(), a.waitTime(outcome{}))
			} else {
				sleep[struct{}](ctx, nil, a.waitTime(o))
			}
		} else {
			sleep(ctx, sub.notify, a.waitTime(o))
		}
		if ctx.Err() != nil {
			return errors.Join(ErrNotAcquired, context.Cause(ctx), lastErr)
		}
		if sub != nil {
			sub.drain()
		}
		next := a.attempt(ctx)
		if next.held {
			if err := a.acceptGrant(ctx, next); !errors.Is(err, errGrantExpired) {
				return err
			}
		}
		if lastErr = next.err; lastErr != nil {
			if !isTemporary(lastErr) {
				return lastErr
			}
			next.hub, next.channel = o.hub, o.channel
		}
		o = next
	}
}

// subscribe subscribes to the channel of o. It returns nil if that is not possible now.
func subscribe(ctx context.Context, o outcome) *subscription {
	if o.hub == nil {
		return nil
	}
	sub, _ := o.hub.subscribe(ctx, o.channel) // without it waiting continues by polling
	return sub
}

// waitTime returns how long to wait for a message after o.
func (a *acquisition) waitTime(o outcome) time.Duration {
	wait := a.locker.pollInterval/5 + rand.N(a.locker.pollInterval*4/5)
	if o.err != nil {
		return min(wait, maxErrorPause/2+rand.N(maxErrorPause/2))
	}
	if o.wait > 0 {
		return min(wait, o.wait+time.Millisecond)
	}
	return wait
}

// sleep waits until wake receives, d has passed or ctx is done.
func sleep[T any](ctx context.Context, wake <-chan T, d time.Duration) {
	select {
	case <-wake:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// isTemporary reports whether an attempt may succeed after err: if there was no reply, or
// if the server is starting, failing over or busy.
func isTemporary(err error) bool {
	if errors.Is(err, ErrNotSynced) || errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrNotReentrant) {
		return false
	}
	return !replied(err) || slices.ContainsFunc([]string{
		"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY", "MOVED", "ASK", "max number of clients",
	}, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// attempt makes one attempt. The call ends at the deadline of ctx, but if ctx is
// canceled, attempt returns only when the call has ended. Returning earlier would need a
// goroutine for each call, which would double the cost of a lock.
func (a *acquisition) attempt(ctx context.Context) outcome {
	if err := contextError(ctx); err != nil {
		return outcome{err: errors.Join(ErrNotAcquired, err)}
	}
	a.isSent = true
	call, cancel := a.locker.callContext(ctx)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
		a.params.timeout = time.Until(deadline)
	}
	o := outcome{sent: time.Now()}
	o.attemptResult, o.err = a.lock.kind.attempt(call, a.params)
	a.mayHold = a.mayHold || isOutcomeUnknown(o.err)
	if err := contextError(ctx); o.err != nil && err != nil {
		o.err = errors.Join(ErrNotAcquired, err, o.err)
	}
	return o
}

// contextError returns the cause if ctx has ended, also if its deadline has passed but
// its timer has not fired yet.
func contextError(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// acceptGrant accepts a grant. If that fails, it records that the lock must be released.
func (a *acquisition) acceptGrant(ctx context.Context, o outcome) error {
	err := a.accept(ctx, o)
	a.mayHold = a.mayHold || err != nil
	return err
}

// undo removes in the background what a failed acquisition may have left in Redis.
func (a *acquisition) undo() {
	inQueue := a.lock.traits.queuesInRedis && a.params.willWait && a.isSent
	switch {
	case a.mayHold:
		a.locker.releaseInBackground(a.params.owner, func() { a.locker.retryRelease(a.lock.kind, a.params, wasHeld) })
	case inQueue:
		a.locker.releaseInBackground(a.params.owner, func() { a.locker.retryRelease(a.lock.kind, a.params, always) })
	}
}

// resourceNames returns the names of everything that an owner of l holds in Redis. Locks
// that share a resource have a name in common.
func (l *Lock) resourceNames() []string {
	if l.resources == nil {
		return []string{l.namespace + "\x00" + l.name} // no namespace has a NUL
	}
	return l.resources
}

// overlaps reports whether owner holds a part of lk as part of another lock. Redis counts
// the holds of an owner for each resource, not for each lock, so the first unlock would
// release what the other lock relies on. It checks every session of the Locker, but is
// only called with WithOwner.
func (l *Locker) overlaps(ctx context.Context, lk *Lock, owner Owner) bool {
	ours := lk.resourceNames()
	var others []*session
	l.mu.Lock()
	for g, s := range l.sessions {
		if g.owner == owner && (g.namespace != lk.namespace || g.name != lk.name) {
			others = append(others, s)
		}
	}
	l.mu.Unlock()
	return slices.ContainsFunc(others, func(s *session) bool {
		shared := func(name string) bool { return slices.Contains(ours, name) }
		return slices.ContainsFunc(s.lock.resourceNames(), shared) && s.isHeld(ctx)
	})
}

// retryRelease releases what c has: a hold that has ended, or a position in a queue. It is repeated until a call succeeds
// and isDone, at most five times in about 4 s. If the Locker is closing, there is no pause and at most one more call.
func (l *Locker) retryRelease(k lockKind, c callParams, isDone func(releaseResult) bool) {
	c.count = 0
	for _, pause := range []time.Duration{0, 50, 200, 1000, 3000} {
		sleep[struct{}](l.ctx, nil, pause*time.Millisecond)
		isClosing := l.ctx.Err() != nil
		ctx, cancel := l.callContext(context.Background())
		r, err := k.release(ctx, c)
		cancel()
		if err == nil && isDone(r) || isClosing {
			return
		}
	}
}

// always is for what c is known to have.
func always(releaseResult) bool { return true }

// wasHeld is for what c may hold after a call with an unknown outcome. The call may
// even be executed after the first release, because it was sent over another connection.
// So the release is repeated until it finds something; what it does not find expires with
// its lease.
func wasHeld(r releaseResult) bool { return r.held }

// releaseInBackground runs work, which releases what owner may hold, in the background.
// New acquisitions of the owner wait until it is done (awaitPending), because work could
// not distinguish them from old ones. The caller must have called beginCall, so that
// Close waits for work.
func (l *Locker) releaseInBackground(owner Owner, work func()) {
	done := make(chan struct{})
	l.mu.Lock()
	before := l.pending[owner]
	l.pending[owner] = done
	l.mu.Unlock()
	l.running.Go(func() {
		work()
		if before != nil {
			<-before
		}
		l.endPending(owner, done)
	})
}

// endPending ends what is pending for owner until done is closed.
func (l *Locker) endPending(owner Owner, done chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending[owner] == done {
		delete(l.pending, owner)
	}
	close(done)
}

// awaitPending waits until nothing is pending for owner. Then next is, unless it is nil.
func (l *Locker) awaitPending(ctx context.Context, owner Owner, next chan struct{}) error {
	for {
		l.mu.Lock()
		done := l.pending[owner]
		if done == nil && next != nil {
			l.pending[owner] = next
		}
		l.mu.Unlock()
		if done == nil {
			return nil
		}
		select {
		case <-done:
		case <-ctx.Done():
			return errors.Join(ErrNotAcquired, context.Cause(ctx))
		}
	}
}
