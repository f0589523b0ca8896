package lock

import (
	"context"
	"errors"
)

// Do runs work while it holds l, and gives l back whatever happens. The context
// of work is ctx, ended also when the lock may no longer be relied on; its cause
// is ErrLost then, and [TokenFrom] finds the fencing token in it. Do returns the errors of work and of the unlock together: if
// the lock was lost, the result matches ErrLost even when work returned nil.
func Do(ctx context.Context, l Lockable, work func(context.Context) error) (err error) {
	hold, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	inner, cancel := hold.deriveContext(context.WithValue(ctx, tokenKey{}, hold.Token()))
	defer cancel(nil)
	return work(inner)
}
