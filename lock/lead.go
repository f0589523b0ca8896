package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// leadPause is the maximum time before Lead tries again after an error, or after work has
// returned.
const leadPause = time.Second

// Lead implements leader election with a lock: it runs work while this process holds l, and
// tries to acquire l again after that, until ctx is done; then it returns the cause of ctx.
// Before Lead continues or returns, work has returned and l is released.
//
// The context of work is canceled a tenth of the lease before Redis grants the lock to
// another process (3 s by default): this is the time that work has to stop. It is measured
// by this machine's clock: work that ignores its context, or a machine that sleeps, can
// still overlap with the next leader. If that would do harm, use a fenced lock and the
// token of [TokenFrom].
//
// If the Locker is closed, Lead returns ErrClosed; it also returns at once for an invalid
// name or lease. It retries after all other errors.
func Lead(ctx context.Context, l Lockable, work func(context.Context)) error {
	for {
		hold, err := l.Lock(ctx)
		if err == nil {
			runHeld(ctx, hold, work)
			err = hold.Unlock(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrBadName) || errors.Is(err, ErrReentrant) {
			return err
		}
		sleep[struct{}](ctx, nil, leadPause/2+rand.N(leadPause/2))
	}
}

// runHeld runs work until it returns, and cancels its context in time.
func runHeld(ctx context.Context, hold *Hold, work func(context.Context)) {
	inner, cancel := hold.bind(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	margin := hold.session.claim.lease / 10
	done := make(chan struct{})
	go func() {
		defer close(done)
		for inner.Err() == nil {
			left := time.Until(hold.Deadline()) - margin
			if left <= 0 {
				cancel(ErrLost)
				return
			}
			sleep[struct{}](inner, nil, left)
		}
	}()
	work(inner)
	cancel(nil)
	<-done
}

type tokenKey struct{}

// TokenFrom returns the fencing token of the work of [Lead] or [Do]; 0 if ctx is not theirs
// or the lock has no tokens.
func TokenFrom(ctx context.Context) int64 {
	token, _ := ctx.Value(tokenKey{}).(int64)
	return token
}
