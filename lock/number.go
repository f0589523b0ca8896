package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// An initialValue is the value that trySet sets, and the message that it publishes.
type initialValue struct {
	script  *script
	name    string
	value   int64
	channel string
	message int64
}

// trySet sets a number and publishes the message if the number does not exist, and
// reports whether it did. A lost reply is an error.
func (l *Locker) trySet(ctx context.Context, i initialValue) (bool, error) {
	if i.value < 1 {
		return false, fmt.Errorf("set %s: %d is below 1", i.name, i.value)
	}
	if !l.beginCall() {
		return false, ErrClosed
	}
	defer l.endCall()
	ctx, cancel := context.WithTimeout(ctx, l.callTimeout)
	defer cancel()
	verb, err := l.publishCommand(ctx)
	if err != nil {
		return false, err
	}
	r, err := l.run(ctx, i.script, 0, []string{i.name}, i.value, verb, i.channel, i.message)
	return r.done, err
}

// callWithID calls send with a unique ID and, if the reply is lost, once more with the
// same ID, by which the script detects the repetition. Like Unlock it works after ctx has
// ended, within two call timeouts.
func (l *Locker) callWithID(ctx context.Context, send func(ctx context.Context, verb, id string) error) error {
	if !l.beginCall() {
		return ErrClosed
	}
	defer l.endCall()
	id := l.NewOwner().id
	var err error
	for range 2 {
		call, cancel := l.callContext(ctx)
		var verb string
		if verb, err = l.publishCommand(call); err == nil {
			err = send(call, verb, id)
		}
		cancel()
		if err == nil || replied(err) {
			break
		}
	}
	return err
}

// readNumber returns the number stored under the name of l; 0 if there is none.
func (l *Lock) readNumber(ctx context.Context) (int64, error) {
	if l.err != nil {
		return 0, l.err
	}
	n, err := l.locker.rdb.Get(ctx, l.name).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", l.name, err)
	}
	return n, nil
}
