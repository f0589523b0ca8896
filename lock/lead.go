package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// leadPause is the longest time until Lead campaigns again after an error, or after work
// has returned by itself.
const leadPause = time.Second

// Lead runs a leader election with a lock: it calls work while this process holds l, and
// campaigns again after that, until ctx is done. Then it returns the cause of ctx. In any
// case work has returned, and l is released, before Lead continues or returns.
//
// The context of work ends a tenth of the lease before another process can acquire the
// lock (3 s by default); work has this time to stop. It is measured on this machine: work
// that ignores its context, or a machine that is suspended, can still overlap with the
// next leader. Use a fenced lock, and the token of [TokenFrom], where that would do harm.
//
// Lead returns ErrClosed if the Locker is closed, and returns at once if the name or the
// lease is not valid. All other errors are retried.
func Lead(ctx context.Context, l Lockable, work func(context.Context)) error {
	if l == nil || work == nil {
		return fmt.Errorf("%w: the lock or the work is nil", ErrInvalidArgument)
	}
	for {
		hold, err := l.Lock(ctx)
		if err == nil {
			runHeld(ctx, hold, work)
			err = hold.Unlock(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalidName) || errors.Is(err, ErrInvalidArgument) ||
			errors.Is(err, ErrNotReentrant) {
			return err
		}
		sleep[struct{}](ctx, nil, leadPause/2+rand.N(leadPause/2))
	}
}

// runHeld runs work, and ends its context before the lease is over.
func runHeld(ctx context.Context, hold *Hold, work func(context.Context)) {
	workCtx, cancel := hold.deriveContext(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	margin := hold.session.params.lease / 10
	done := make(chan struct{})
	go func() {
		defer close(done)
		for workCtx.Err() == nil {
			left := time.Until(hold.Deadline()) - margin
			if left <= 0 {
				cancel(ErrLost)
				return
			}
			sleep[struct{}](workCtx, nil, left)
		}
	}()
	work(workCtx)
	cancel(nil)
	<-done
}

type tokenKey struct{}

// TokenFrom returns the fencing token of the lock that [Lead] or [Do] holds for the work
// with this context. It is 0 if ctx is not such a context or the lock has no tokens.
func TokenFrom(ctx context.Context) int64 {
	token, _ := ctx.Value(tokenKey{}).(int64)
	return token
}

// Do acquires l, calls work, and releases l. The context of work is derived from ctx. It
// also ends when the lock may no longer be relied on, with the cause ErrLost, and
// [TokenFrom] returns the fencing token from it. Do returns the errors of work and of the
// unlock joined: if the lock was lost, the result matches ErrLost even if work returned
// nil.
func Do(ctx context.Context, l Lockable, work func(context.Context) error) (err error) {
	if l == nil || work == nil {
		return fmt.Errorf("%w: the lock or the work is nil", ErrInvalidArgument)
	}
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	workCtx, cancel := hold.deriveContext(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	return work(workCtx)
}
