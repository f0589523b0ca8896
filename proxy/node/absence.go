package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// operatorTimeout is how long all calls to Redis for one request of an operator may take together, while Redis is
// known to be away: enough for one that is back.
const operatorTimeout = 150 * time.Millisecond

// deadlineKey is the context key of the function that returns the deadline of an operator's request.
type deadlineKey struct{}

// forOperator returns ctx as that of an operator's request, of which operatorTimeout begins with the first call that
// it bounds.
func forOperator(ctx context.Context) context.Context {
	if ctx.Value(deadlineKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, deadlineKey{}, sync.OnceValue(func() time.Time { return time.Now().Add(operatorTimeout) }))
}

// An absence knows by the calls of a client whether Redis is away: as many have failed in a row as open a
// circuit breaker. It is a hook of the client, behind its breaker: when that lets a call through to try Redis,
// an operator does not wait for it longer than operatorTimeout.
type absence struct {
	after  int64
	failed atomic.Int64 // calls in a row
}

// watch adds a to a client.
func (a *absence) watch(client redis.UniversalClient) {
	switch c := client.(type) {
	case *redis.ClusterClient:
		c.OnNewNode(func(node *redis.Client) { node.AddHook(a) })
	case *redis.Client:
		c.AddHook(a)
	}
}

// DialHook implements redis.Hook. The command that needs the connection is counted.
func (a *absence) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (a *absence) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a.call(ctx, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook.
func (a *absence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return a.call(ctx, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

// bound bounds ctx if it is that of an operator's request and Redis is known to be away.
func (a *absence) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Value(deadlineKey{}).(func() time.Time); ok && a.failed.Load() >= a.after {
		return context.WithDeadline(ctx, deadline())
	}
	return ctx, func() {}
}

// A boundedStore is a store that questions about keys do not wait for while it is known to be away, whoever asks:
// operators, metrics, and changes that wait for it. Its own breaker knows only what decisions have met.
type boundedStore struct {
	*redisstore.Store
	away *absence
}

// Inspect implements limiter.AdminStore.
func (s boundedStore) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	ctx, cancel := s.away.bound(forOperator(ctx))
	defer cancel()
	return s.Store.Inspect(ctx, claims)
}

func (a *absence) call(ctx context.Context, next func(context.Context) error) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	err := next(ctx)
	var reply redis.Error
	switch {
	case err == nil, errors.As(err, &reply):
		a.failed.Store(0)
	case !errors.Is(err, context.Canceled):
		a.failed.Add(1)
	}
	return err
}
