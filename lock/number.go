package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// An initial is the initial value of a number in Redis, and the message to publish with it.
type initial struct {
	script  *script
	name    string
	value   int64
	channel string
	message int64
}

// trySet sets the initial value and publishes the message, if the number does not exist,
// which it reports. A lost reply is an error.
func (l *Locker) trySet(ctx context.Context, i initial) (bool, error) {
	if i.value < 1 {
		return false, fmt.Errorf("set %s: %d is below 1", i.name, i.value)
	}
	if !l.begin() {
		return false, ErrClosed
	}
	defer l.end()
	ctx, cancel := context.WithTimeout(ctx, l.call)
	defer cancel()
	verb, err := l.publish(ctx)
	if err != nil {
		return false, err
	}
	r, err := l.run(ctx, i.script, 0, []string{i.name}, i.value, verb, i.channel, i.message)
	return r.done, err
}

// callWithID sends a call with an id, and repeats it with the same id if the reply is lost.
// Like Unlock it works after ctx has ended, within two call timeouts.
func (l *Locker) callWithID(ctx context.Context, send func(ctx context.Context, verb, id string) error) error {
	if !l.begin() {
		return ErrClosed
	}
	defer l.end()
	id := l.NewOwner().id
	var err error
	for range 2 {
		call, cancel := l.bounded(ctx)
		var verb string
		if verb, err = l.publish(call); err == nil {
			err = send(call, verb, id)
		}
		cancel()
		if err == nil || replied(err) {
			break
		}
	}
	return err
}

// number returns the number under the name of lk; 0 if there is none.
func (lk *Lock) number(ctx context.Context) (int64, error) {
	if lk.err != nil {
		return 0, lk.err
	}
	n, err := lk.locker.rdb.Get(ctx, lk.name).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", lk.name, err)
	}
	return n, nil
}
