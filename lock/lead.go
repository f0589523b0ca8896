package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// leadPause is the longest time before Lead campaigns again after an error, or
// after work that ended by itself.
const leadPause = time.Second

// Lead is a leader election by a lock: it runs work while this process holds l, and
// campaigns again when that is over, until ctx is done; then it returns the cause of ctx. Whatever ends it,
// work has returned before Lead goes on, and l is given back.
//
// The context of work ends a tenth of the lease before Redis gives the lock to
// somebody else (3 s, if nothing else is set): that is the time work has to
// stop. It counts in time that passes on this machine: work that ignores its
// context, or a machine that sleeps, can still overlap with the next leader. Use
// a fenced lock, and the token of [TokenFrom], where that would do harm.
//
// A Locker that is closed ends Lead with ErrClosed; a name or lease that cannot
// be used ends it at once. All other errors are tried again.
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
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalidName) || errors.Is(err, ErrNotReentrant) {
			return err
		}
		sleep[struct{}](ctx, nil, leadPause/2+rand.N(leadPause/2))
	}
}

// runHeld runs work until it returns, ending its context in time.
func runHeld(ctx context.Context, hold *Hold, work func(context.Context)) {
	inner, cancel := hold.deriveContext(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	margin := hold.session.params.lease / 10
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

// TokenFrom is the fencing token under which the work of [Lead] or [Do] runs; 0
// if ctx is not theirs or the lock has no tokens.
func TokenFrom(ctx context.Context) int64 {
	token, _ := ctx.Value(tokenKey{}).(int64)
	return token
}
