package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/admin"
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

// livenessRetry is the interval between attempts to open a socket that another process has.
const livenessRetry = time.Second

// livenessName returns the name of the socket on which a weir that was started with that file
// answers liveness checks. It is in the abstract namespace: it belongs to the network namespace (of
// a container, for example), needs no directory to write to, and disappears with the process. Only
// Linux has it; elsewhere the name is "".
func livenessName(path string) string {
	whole, err := filepath.Abs(path)
	if err != nil || runtime.GOOS != "linux" {
		return ""
	}
	sum := sha256.Sum256([]byte(whole))
	return "@weir/" + hex.EncodeToString(sum[:12])
}

// serveLiveness answers liveness checks until ctx is done. The socket can be found even if the
// admin listener of the file has changed since the start. While another process with the same file
// has the socket, that one answers.
func serveLiveness(ctx context.Context, path string) {
	name := livenessName(path)
	if name == "" {
		return
	}
	var l net.Listener
	for l == nil {
		var err error
		if l, err = (&net.ListenConfig{}).Listen(ctx, "unix", name); err == nil {
			break
		}
		select {
		case <-time.After(livenessRetry):
		case <-ctx.Done():
			return
		}
	}
	s := &http.Server{ReadHeaderTimeout: connectTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n"))
	})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	_ = s.Serve(l) // until it is closed
}

// Alive checks the weir that was started with that file. It returns an error if there is none, or
// if it does not answer.
func Alive(ctx context.Context, path string) error {
	name := livenessName(path)
	if name == "" {
		return net.ErrClosed
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", name)
	}}
	return admin.Client{Address: "http://weir", HTTP: &http.Client{Transport: t}}.Healthz(ctx)
}
