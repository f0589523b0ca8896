package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// errorPause is the maximum pause after an attempt without a reply from Redis.
const errorPause = 500 * time.Millisecond

// errLate reports a grant that arrived after its lease had ended.
var errLate = fmt.Errorf("%w: the grant came after its lease", ErrNotAcquired)

// An acquisition is the state of one call of Lock or TryLock.
type acquisition struct {
	locker *Locker
	lock   *Lock
	claim  claim
	// watched: the hold will be renewed.
	watched bool
	// accept handles a grant; after errLate a waiter continues.
	accept func(context.Context, outcome) error
	pass   *pass // nil unless this caller may contend
	asked  bool  // an attempt was sent
	doubt  bool  // an attempt with unknown outcome may have taken the lock
}

// A way is a strategy of an acquisition: once, or wait.
type way func(*acquisition, context.Context) error

// An outcome is the result of one attempt.
type outcome struct {
	answer
	sent time.Time // before the call: leases count from here
	err  error
}

// acquire runs an acquisition, and cleans up if it fails.
func (l *Locker) acquire(ctx context.Context, lk *Lock, options []Option, try way) (*Hold, error) {
	r, err := ask(options)
	if err := errors.Join(lk.err, err); err != nil {
		return nil, err
	}
	switch s := l.session(holdKey{lk.role, lk.name, r.owner}); {
	case r.owner == (Owner{}):
		r.owner = lk.newOwner()
	case !lk.traits.enters:
		return nil, fmt.Errorf("lock %s: %w", lk.name, ErrReentrant)
	case s != nil:
		return s.enter(ctx, r)
	case l.overlaps(lk, r.owner):
		return nil, fmt.Errorf("lock %s: %w: its owner holds some of it together with something else; unlock that first", lk.name, ErrReentrant)
	}
	lease := r.lease
	if !r.leased {
		lease = l.lease
	}
	var hold *Hold
	a := &acquisition{locker: l, lock: lk, watched: !r.leased, claim: claim{owner: r.owner, count: 1, lease: lease, replicas: r.replicas}}
	a.accept = func(ctx context.Context, o outcome) error {
		hold, err = l.open(ctx, a, o)
		return err
	}
	if err := a.run(ctx, try); err != nil {
		return nil, err
	}
	return hold, nil
}

// run tries until a grant is accepted.
func (a *acquisition) run(ctx context.Context, try way) error {
	if a.lock.err != nil {
		return a.lock.err
	}
	if !a.locker.begin() {
		return ErrClosed
	}
	defer a.locker.end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(a.locker.life, func() { cancel(ErrClosed) })
	defer stop()
	err := a.locker.settled(ctx, a.claim.owner)
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

// once makes a single attempt.
func (a *acquisition) once(ctx context.Context) error {
	o := a.attempt(ctx)
	if o.err != nil {
		return o.err
	}
	if !o.held {
		return ErrNotAcquired
	}
	return a.take(ctx, o)
}

// wait tries until ctx is done.
func (a *acquisition) wait(ctx context.Context) (err error) {
	a.claim.patient = true
	if !a.lock.traits.crowds {
		a.pass, err = a.locker.gates.enter(ctx, a.lock.role+a.lock.name)
		if err != nil {
			return errors.Join(ErrNotAcquired, err)
		}
		defer func() {
			if a.pass != nil {
				a.pass.leave(0)
			}
		}()
	}
	o := a.attempt(ctx)
	if o.err != nil {
		return o.err
	}
	if o.held {
		return a.take(ctx, o)
	}
	return a.listen(ctx, o)
}

// listen tries again whenever the lock may have become free: once when the subscription is
// confirmed, because an earlier release was not received; then after every message, and
// after a timeout.
func (a *acquisition) listen(ctx context.Context, o outcome) error {
	var sub *subscription
	defer func() {
		if sub != nil {
			sub.close()
		}
	}()
	var trouble error // error of the last attempt, if Redis did not reply
	for {
		if sub == nil || sub.gone() || sub.channel != o.channel {
			if sub != nil {
				sub.close()
			}
			if sub = subscribe(ctx, o); sub != nil {
				sleep(ctx, sub.ready(), a.waitTime(outcome{}))
			} else {
				sleep[struct{}](ctx, nil, a.waitTime(o))
			}
		} else {
			sleep(ctx, sub.woken, a.waitTime(o))
		}
		if ctx.Err() != nil {
			return errors.Join(ErrNotAcquired, context.Cause(ctx), trouble)
		}
		if sub != nil {
			sub.drain()
		}
		next := a.attempt(ctx)
		if next.held {
			if err := a.take(ctx, next); !errors.Is(err, errLate) {
				return err
			}
		}
		if trouble = next.err; trouble != nil {
			if !passing(trouble) {
				return trouble
			}
			next.hub, next.channel = o.hub, o.channel
		}
		o = next
	}
}

// subscribe subscribes to the channel in o; nil if that is not possible now.
func subscribe(ctx context.Context, o outcome) *subscription {
	if o.hub == nil {
		return nil
	}
	sub, err := o.hub.listen(ctx, o.channel)
	if err != nil {
		return nil // polling continues
	}
	return sub
}

// waitTime returns the maximum time to wait for a message after o.
func (a *acquisition) waitTime(o outcome) time.Duration {
	wait := a.locker.poll/5 + rand.N(a.locker.poll*4/5)
	if o.err != nil {
		return min(wait, errorPause/2+rand.N(errorPause/2))
	}
	if o.wait > 0 {
		return min(wait, o.wait+time.Millisecond)
	}
	return wait
}

// sleep waits for wake, for d, or for the end of ctx.
func sleep[T any](ctx context.Context, wake <-chan T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// passing reports whether err may be temporary: no reply, or a reply of a server that is
// starting, failing over or busy.
func passing(err error) bool {
	if errors.Is(err, ErrNotSynced) || errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrReentrant) {
		return false
	}
	if !replied(err) {
		return true
	}
	for _, prefix := range []string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY", "MOVED", "ASK"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// attempt makes one attempt. The call has the deadline of ctx; a cancellation of ctx is
// noticed when the call has ended, because a goroutine for each call would double the cost
// of a lock.
func (a *acquisition) attempt(ctx context.Context) outcome {
	if err := over(ctx); err != nil {
		return outcome{err: errors.Join(ErrNotAcquired, err)}
	}
	a.asked = true
	call, cancel := a.locker.bounded(ctx)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		call, cancel = context.WithDeadline(call, deadline)
		defer cancel()
	}
	o := outcome{sent: time.Now()}
	o.answer, o.err = a.lock.kind.attempt(call, a.claim)
	a.doubt = a.doubt || unknown(o.err)
	if err := over(ctx); o.err != nil && err != nil {
		o.err = errors.Join(ErrNotAcquired, err, o.err)
	}
	return o
}

// over returns the cause of the end of ctx, also if its deadline has passed but its timer
// has not fired yet.
func over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// take accepts a grant, or records that it must be undone.
func (a *acquisition) take(ctx context.Context, o outcome) error {
	if err := a.accept(ctx, o); err != nil {
		a.doubt = true
		return err
	}
	if a.lock.traits.exclusive {
		a.pass = nil // now owned by the session: other callers wait for its end
	}
	return nil
}

// undo removes in the background what a failed acquisition may have left in Redis.
func (a *acquisition) undo() {
	inQueue := a.lock.traits.queues && a.claim.patient && a.asked
	switch {
	case a.doubt:
		a.locker.settle(a.claim.owner, func() { a.locker.undo(a.lock.kind, a.claim) })
	case inQueue:
		a.locker.settle(a.claim.owner, func() { a.locker.withdraw(a.lock.kind, a.claim) })
	}
}
