package lock

import (
	"context"
	"errors"
	"fmt"
)

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
