package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// errorPause is the longest pause after an attempt that Redis did not answer.
const errorPause = 500 * time.Millisecond

// errLate reports that the grant came when its lease was over already.
var errLate = fmt.Errorf("%w: the grant came after its lease", ErrNotAcquired)

// An acquisition is one caller's way to a lock.
type acquisition struct {
	locker *Locker
	lock   *Lock
	claim  claim
	// watched: the hold is to be renewed.
	watched bool
	// accept takes in a grant; errLate makes a waiter go on.
	accept func(context.Context, outcome) error
	pass   *pass // nil unless it is this caller's turn to contend
	asked  bool  // an attempt was sent
	doubt  bool  // an attempt may have taken the lock without our knowing
}

// A way is how hard an acquisition tries.
type way func(*acquisition, context.Context) error

// An outcome is what became of one attempt.
type outcome struct {
	answer
	sent time.Time // before the call: leases count from here
	err  error
}

// acquire runs one way to a hold, and leaves nothing behind if it fails.
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

// run goes one way until a grant is accepted.
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

// once asks a single time.
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

// wait asks until ctx is done.
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

// listen tries again whenever the lock may have become free: first when the
// subscription is confirmed, because a release before that was not heard; then
// at every message, and at the end of a time in any case.
func (a *acquisition) listen(ctx context.Context, o outcome) error {
	var sub *subscription
	defer func() {
		if sub != nil {
			sub.close()
		}
	}()
	var trouble error // the last attempt's, if Redis did not answer
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

// subscribe listens to what o names; nil when that cannot be done now.
func subscribe(ctx context.Context, o outcome) *subscription {
	if o.hub == nil {
		return nil
	}
	sub, err := o.hub.listen(ctx, o.channel)
	if err != nil {
		return nil // polling goes on
	}
	return sub
}

// waitTime is how long to wait for a message after o.
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

// passing reports whether a waiter may hope that err goes away: no reply at
// all, or the reply of a server that is starting, failing over or busy.
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

// attempt asks once. The deadline of ctx is the call's too; the end of ctx
// without a deadline is seen when the call has ended, because a goroutine for
// each call, which could leave it to itself, would double what a lock costs.
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

// over is why ctx has ended, or will as soon as its timer is served.
func over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// take accepts a grant, or remembers that it must be given back.
func (a *acquisition) take(ctx context.Context, o outcome) error {
	if err := a.accept(ctx, o); err != nil {
		a.doubt = true
		return err
	}
	if a.lock.traits.exclusive {
		a.pass = nil // the session's now: neighbours wait for its end
	}
	return nil
}

// undo sees in the background that an acquisition which failed leaves nothing
// in Redis.
func (a *acquisition) undo() {
	inQueue := a.lock.traits.queues && a.claim.patient && a.asked
	switch {
	case a.doubt:
		a.locker.settle(a.claim.owner, func() { a.locker.undo(a.lock.kind, a.claim) })
	case inQueue:
		a.locker.settle(a.claim.owner, func() { a.locker.withdraw(a.lock.kind, a.claim) })
	}
}
