package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/redis/go-redis/v9"
)

// ErrOpen reports that Redis was not asked, because it has failed too often in
// a row and rests. An error that wraps it wraps the last failure as well.
var ErrOpen = errors.New("redis rests after failures")

// errSharedOpen reports that this is so of limiters that Redisson shares, and
// says nothing of others.
var errSharedOpen = errors.New("limiters shared with Redisson")

// A breaker stops asking one Redis that keeps failing. After so many failures in
// a row it answers ErrOpen at once, for a rest; then it lets one call through
// and goes by what that says. What counts as a failure, evidenceOf says. Limiters
// that Redisson shares have a circuit of their own: what others do to them must not
// cost anybody else anything.
type breaker struct {
	own, shared *circuit
	masters     *masters // nil: of a client that does not follow any
}

func newBreaker(after uint, rest time.Duration) breaker {
	return breaker{own: newCircuit(after, rest, ErrOpen), shared: newCircuit(after, rest, fmt.Errorf("%w: %w", errSharedOpen, ErrOpen))}
}

// breakerQuery is in the context of a command that asks for the breaker of a client, and
// nothing of Redis.
type breakerQuery struct{}

// breakerOf is the breaker that NewClient has given to a client; nil: it has none.
func breakerOf(client *redis.Client) (b *breaker) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), breakerQuery{}, &b))
	cancel() // without a breaker nobody else is asked either
	_ = client.Process(ctx, redis.NewCmd(ctx, "ping"))
	return b
}

// DialHook counts nothing: who dials does so for a command. It notes which master the
// client finds.
func (b breaker) DialHook(next redis.DialHook) redis.DialHook {
	if b.masters == nil {
		return next
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err == nil {
			b.masters.note(c.RemoteAddr().String())
		}
		return c, err
	}
}

// ProcessHook guards one command.
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.guard(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook guards one pipeline, which counts as one call.
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return b.guard(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (b breaker) guard(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
	if at, ok := ctx.Value(breakerQuery{}).(**breaker); ok {
		*at = &b
		return nil
	}
	if ctx.Value(insideBreaker{}) != nil {
		return next(ctx)
	}
	c := b.own
	if ctx.Value(sharedCall{}) != nil {
		c = b.shared
	}
	if !c.TryAcquirePermit() {
		err := *c.why.Load()
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	err := next(context.WithValue(ctx, insideBreaker{}, true))
	c.record(err)
	return err
}

// insideBreaker marks the context of a call that holds a permit already: a new
// connection says hello within the command that it was dialled for.
type insideBreaker struct{}

// sharedCall marks the context of a call about limiters that Redisson shares.
type sharedCall struct{}

func shared(ctx context.Context) context.Context { return context.WithValue(ctx, sharedCall{}, true) }

// A circuit is what one kind of calls has learnt of one Redis.
type circuit struct {
	circuitbreaker.CircuitBreaker[any]
	rest  time.Duration
	open  error
	why   atomic.Pointer[error] // what is answered while Redis rests
	since atomic.Int64          // ns; when it began to say "not now" and nothing else; 0: it does not
}

func newCircuit(after uint, rest time.Duration, open error) *circuit {
	c := &circuit{rest: rest, open: open}
	c.CircuitBreaker = circuitbreaker.NewBuilder[any]().
		WithFailureThreshold(after).WithDelay(rest).WithSuccessThreshold(1).Build()
	c.why.Store(&open)
	return c
}

// record tells the circuit how a call went. A caller that left says nothing about
// Redis, but in a half-open circuit somebody must be told. Nor does a Redis that
// says "not now", before it has said nothing else for as long as it would rest.
func (c *circuit) record(err error) {
	if c == nil {
		return
	}
	said := evidenceOf(err)
	now := time.Now().UnixNano()
	if said == evidenceUp || said == evidenceDown {
		c.since.Store(0)
	}
	if said == evidenceBusy && (c.since.CompareAndSwap(0, now) || now-c.since.Load() < int64(c.rest)) {
		said = evidenceNone
	}
	switch {
	case said == evidenceUp:
		c.RecordSuccess()
	case said == evidenceNone && !c.IsHalfOpen():
	default:
		why := fmt.Errorf("%w: %w", c.open, err)
		c.why.Store(&why)
		c.RecordFailure()
	}
}
