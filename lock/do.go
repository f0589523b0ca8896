package lock

import (
	"context"
	"errors"
)

// Do runs work while it holds l, and unlocks l afterwards, also if work panics. The context
// of work is derived from ctx and is canceled with the cause ErrLost when the lock is lost;
// [TokenFrom] returns its fencing token. Do returns the errors of work and of the unlock:
// if the lock was lost, the result matches ErrLost even if work returned nil.
func Do(ctx context.Context, l Lockable, work func(context.Context) error) (err error) {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	inner, cancel := hold.bind(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	return work(inner)
}
