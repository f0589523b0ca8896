package lock

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Latch is a count-down latch, compatible with Redisson's RCountDownLatch. It is open
// when its count is 0. All methods are safe for concurrent use.
type Latch struct {
	lock      *Lock
	channel   string
	mark      string
	set, down *script
}

// Latch returns the latch with this name. It is open until TrySetCount. Its channel has
// braces around name even if name contains some, so a name with a hash tag, which would
// put the channel into another slot, is ErrInvalidName in a cluster.
func (l *Locker) Latch(name string) *Latch {
	channel := "redisson_countdownlatch__channel__{" + name + "}"
	lk := l.newLock(name, &latch{l, name, channel}, traits{noLocalQueue: true})
	if _, cluster := l.rdb.(*redis.ClusterClient); cluster && lk.err == nil && strings.ContainsAny(name, "{}") {
		lk.err = fmt.Errorf("%w: %q has braces; the name of a latch in a cluster must have none", ErrInvalidName, name)
	}
	return &Latch{
		lock: lk, channel: channel, mark: suffixedKey(name, "weir_counted:"),
		set: l.scripts["semaphore_set"], down: l.scripts["latch_down"],
	}
}

// TrySetCount sets the count to n if the latch is open, and reports whether it did.
func (t *Latch) TrySetCount(ctx context.Context, n int64) (set bool, err error) {
	if t.lock.err != nil {
		return false, t.lock.err
	}
	return t.lock.locker.trySet(ctx, initialValue{script: t.set, name: t.lock.name, value: n, channel: t.channel, message: 1})
}

// CountDown decreases the count by one; at 0 the latch opens. If the reply is lost, the
// call is sent again, but has an effect only once.
func (t *Latch) CountDown(ctx context.Context) error {
	if t.lock.err != nil {
		return t.lock.err
	}
	l := t.lock.locker
	return l.callWithID(ctx, func(ctx context.Context, verb, id string) error {
		_, err := l.run(ctx, t.down, 0, []string{t.lock.name, t.mark + id}, markTTL.Milliseconds(), verb, t.channel)
		return err
	})
}

// Count returns the current count; 0 if the latch is open.
func (t *Latch) Count(ctx context.Context) (int64, error) {
	return t.lock.readNumber(ctx)
}

// Await waits until the latch is open or ctx is done.
func (t *Latch) Await(ctx context.Context) error {
	a := &acquisition{locker: t.lock.locker, lock: t.lock}
	a.accept = func(context.Context, outcome) error { return nil }
	return a.run(ctx, (*acquisition).wait)
}

// latch is the kind of Latch. It can be acquired while the latch is open.
type latch struct {
	locker        *Locker
	name, channel string
}

func (l *latch) attempt(ctx context.Context, _ callParams) (attemptResult, error) {
	n, err := l.locker.rdb.Exists(ctx, l.name).Result()
	if err != nil {
		return attemptResult{}, fmt.Errorf("read %s: %w", l.name, err)
	}
	return attemptResult{held: n == 0, hub: l.locker.hub, channel: l.channel}, nil
}

func (l *latch) extend(context.Context, callParams) (bool, error) { return true, nil }

func (l *latch) release(context.Context, callParams) (releaseResult, error) {
	return releaseResult{held: true}, nil
}
