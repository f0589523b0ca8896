package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/redis/go-redis/v9"
)

// ErrOpen says that Redis was not asked, because it has failed too often in a
// row and rests. An error that wraps it wraps the last failure as well.
var ErrOpen = errors.New("redis rests after failures")

// A breaker stops asking one Redis that keeps failing. After so many failures in
// a row it answers ErrOpen at once, for a rest; then it lets one call through
// and goes by what that says. A reply is a success even when it is an error,
// unless it says that this Redis can do nothing now.
type breaker struct {
	circuit circuitbreaker.CircuitBreaker[any]
	why     *atomic.Pointer[error] // what is answered while Redis rests
}

func newBreaker(after uint, rest time.Duration) breaker {
	b := breaker{
		circuit: circuitbreaker.NewBuilder[any]().
			WithFailureThreshold(after).WithDelay(rest).WithSuccessThreshold(1).Build(),
		why: new(atomic.Pointer[error]),
	}
	b.why.Store(&ErrOpen)
	return b
}

// DialHook leaves dialling alone: who dials does so for a command.
func (b breaker) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook guards one command.
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if within(ctx) {
			return next(ctx, cmd)
		}
		if !b.circuit.TryAcquirePermit() {
			err := *b.why.Load()
			cmd.SetErr(err)
			return err
		}
		err := next(context.WithValue(ctx, guarded{}, true), cmd)
		b.record(err)
		return err
	}
}

// ProcessPipelineHook guards one pipeline, which counts as one call.
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if within(ctx) {
			return next(ctx, cmds)
		}
		if !b.circuit.TryAcquirePermit() {
			err := *b.why.Load()
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		err := next(context.WithValue(ctx, guarded{}, true), cmds)
		b.record(err)
		return err
	}
}

// guarded marks the context of a call that holds a permit already: a new
// connection says hello within the command that it was dialled for.
type guarded struct{}

func within(ctx context.Context) bool { return ctx.Value(guarded{}) != nil }

// record tells the circuit how a call went. A caller that left says nothing
// about Redis, but in a half-open circuit somebody must be told.
func (b breaker) record(err error) {
	switch {
	case healthy(err):
		b.circuit.RecordSuccess()
	case errors.Is(err, context.Canceled) && !b.circuit.IsHalfOpen():
	default:
		why := fmt.Errorf("%w: %w", ErrOpen, err)
		b.why.Store(&why)
		b.circuit.RecordFailure()
	}
}

// healthy reports whether err is none, or a reply of a Redis that works.
func healthy(err error) bool {
	var reply redis.Error
	if err == nil || errors.Is(err, redis.Nil) {
		return true
	}
	if !errors.As(err, &reply) {
		return false
	}
	for _, sick := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "OOM", "MISCONF",
		"NOREPLICAS", "NOAUTH", "WRONGPASS", "NOPERM", "ERR max number of clients",
	} {
		if redis.HasErrorPrefix(err, sick) {
			return false
		}
	}
	return true
}
