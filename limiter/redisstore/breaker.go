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

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// ErrOpen reports that Redis was not called because the circuit breaker is open after too
// many consecutive failures. An error that wraps it also wraps the last failure.
var ErrOpen = errors.New("redis circuit breaker open")

// errRedissonOpen reports that this is the circuit breaker of limiters shared with
// Redisson, and not that of others.
var errRedissonOpen = errors.New("limiters shared with Redisson")

// A breaker is the circuit breaker of one Redis. After a number of consecutive failures
// it returns ErrOpen without a call for a delay; then it lets one call through and closes
// or opens depending on its result. evidenceOf defines what a failure is. Limiters shared
// with Redisson have a circuit of their own, so that a misuse of them by other programs
// does not affect other limits.
type breaker struct {
	own, redisson *circuit
	masters       *wire.Masters // nil without Sentinel
}

func newBreaker(after uint, rest time.Duration) breaker {
	return breaker{own: newCircuit(after, rest, ErrOpen), redisson: newCircuit(after, rest, fmt.Errorf("%w: %w", errRedissonOpen, ErrOpen))}
}

// breakerQuery is the context key of a command that returns the breaker of a client and
// does not call Redis.
type breakerQuery struct{}

// breakerOf returns the breaker that NewClient has added to a client, or nil.
func breakerOf(client *redis.Client) (b *breaker) {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), breakerQuery{}, &b))
	cancel() // without a breaker the command is not sent either
	_ = client.Process(ctx, redis.NewCmd(ctx, "ping"))
	return b
}

// withTimeout returns client with another timeout of reads and writes. Like client, it asks the
// breaker: what the client itself returns has no hooks.
func withTimeout(client *redis.Client, timeout time.Duration) *redis.Client {
	patient := client.WithTimeout(timeout)
	if b := breakerOf(client); b != nil {
		patient.AddHook(*b)
	}
	return patient
}

// DialHook does not count failures, because the command that needs the connection does.
// It records the master that the client has found.
func (b breaker) DialHook(next redis.DialHook) redis.DialHook {
	if b.masters == nil {
		return next
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err == nil {
			b.masters.Set(c.RemoteAddr().String())
		}
		return c, err
	}
}

// ProcessHook counts one command.
func (b breaker) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return b.guard(ctx, []redis.Cmder{cmd}, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook counts one pipeline as one call.
func (b breaker) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return b.guard(ctx, cmds, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// guard calls next if the circuit is closed, and records its result.
func (b breaker) guard(ctx context.Context, cmds []redis.Cmder, next func(context.Context) error) error {
	if at, ok := ctx.Value(breakerQuery{}).(**breaker); ok {
		*at = &b
		return nil
	}
	if ctx.Value(insideBreaker{}) != nil {
		return next(ctx)
	}
	c := b.own
	if ctx.Value(redissonCall{}) != nil {
		c = b.redisson
	}
	err := c.acquire()
	if err != nil {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	err = next(context.WithValue(ctx, insideBreaker{}, true))
	c.record(err)
	return err
}

// insideBreaker is the context key of a call that has a permit already: a new connection
// sends HELLO within the command that it is opened for.
type insideBreaker struct{}

// redissonCall is the context key of a call about limiters shared with Redisson.
type redissonCall struct{}

func withRedissonCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, redissonCall{}, true)
}

// A circuit is the state of a breaker for one kind of calls.
type circuit struct {
	circuitbreaker.CircuitBreaker[any]
	delay     time.Duration
	openErr   error
	lastErr   atomic.Pointer[error] // returned while the circuit is open
	busySince atomic.Int64          // ns; start of the current period of evidenceBusy only; 0 if there is none
}

func newCircuit(after uint, rest time.Duration, open error) *circuit {
	c := &circuit{delay: rest, openErr: open}
	c.CircuitBreaker = circuitbreaker.NewBuilder[any]().
		WithFailureThreshold(after).WithDelay(rest).WithSuccessThreshold(1).Build()
	c.lastErr.Store(&open)
	return c
}

// acquire returns nil if Redis may be called, whose result must be recorded then, or the reason why not. Without a
// circuit it may be called.
func (c *circuit) acquire() error {
	if c == nil || c.TryAcquirePermit() {
		return nil
	}
	return *c.lastErr.Load()
}

// record records the result of a call. A canceled call is no evidence, except in a
// half-open circuit, which needs a result. Neither is a Redis that is busy, until it has
// been busy for as long as the delay of the circuit.
func (c *circuit) record(err error) {
	if c == nil {
		return
	}
	e := evidenceOf(err)
	now := time.Now().UnixNano()
	if e == evidenceUp || e == evidenceDown {
		c.busySince.Store(0)
	}
	if e == evidenceBusy && (c.busySince.CompareAndSwap(0, now) || now-c.busySince.Load() < int64(c.delay)) {
		e = evidenceNone
	}
	switch {
	case e == evidenceUp:
		c.RecordSuccess()
	case e == evidenceNone && !c.IsHalfOpen():
	default:
		lastErr := fmt.Errorf("%w: %w", c.openErr, err)
		c.lastErr.Store(&lastErr)
		c.RecordFailure()
	}
}
