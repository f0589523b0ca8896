package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
)

// connectTimeout bounds operations that no request waits for: heartbeats, reloads, checks.
const connectTimeout = time.Second

// A store is the limiter's store, with the functions for sharing it with other nodes.
type store struct {
	kind    string // redis or memory
	limits  limiter.AdminStore
	cluster *cluster.Node // nil without a cluster
	// reported is redisstore.Store.Reported; nil without a cluster.
	reported func() (heard, lost int64)
	bySlot   func() []string // redisstore.Store.CallsBySlot
	// check is redisstore.Store.Check.
	check func(ctx context.Context) (warning string, err error)
	close func()

	id      string // of this node
	started time.Time
	client  redis.UniversalClient // for operations that no request waits for; nil without a cluster
	prefix  string                // of all keys
}

// openStore opens the configured store. It makes no call to Redis yet.
func openStore(c *config.Config, log zerolog.Logger, version string) (store, error) {
	if c.Store == config.StoreMemory {
		return memoryStore(), nil
	}
	redis.SetLogger(redisLog{log}) // one logger for all clients of the process
	decisions, err := redisClient(c.Redis, c.Redis.Timeout)
	if err != nil {
		return store{}, err
	}
	coordination, err := redisClient(c.Redis, connectTimeout)
	if err != nil {
		decisions.Close()
		return store{}, err
	}
	away := &absence{after: int64(c.Redis.Breaker.After)}
	away.watch(coordination)
	limits := redisstore.New(decisions, redisstore.Options{
		Prefix: c.Redis.Prefix, Timeout: c.Redis.Timeout, Grace: c.Redis.Breaker.Rest + connectTimeout,
		Client: clientName(c.Listen),
	})
	id := nodeID()
	member := cluster.Join(coordination, cluster.Options{Prefix: c.Redis.Prefix, ID: id, Version: version, Source: string(c.Reload.Source), Seal: bundle.NewSeal(c.Privacy), CallsBySlot: limits.CallsBySlot})
	return store{
		kind:     "redis",
		limits:   boundedStore{limits, away},
		cluster:  member,
		reported: limits.Reported,
		bySlot:   limits.CallsBySlot,
		check:    redisstore.New(coordination, redisstore.Options{Prefix: c.Redis.Prefix, Timeout: connectTimeout, CachedRefusals: -1}).Check,
		close:    func() { limits.Close(); decisions.Close(); coordination.Close() },

		id: id, started: time.Now().UTC(), client: coordination, prefix: c.Redis.Prefix,
	}, nil
}

// redisLog is the logger of the Redis client. Its messages are logged at debug level, because there
// are many.
type redisLog struct{ log zerolog.Logger }

// Printf implements the client's logger.
func (r redisLog) Printf(_ context.Context, format string, v ...any) {
	r.log.Debug().Msgf("redis: "+format, v...)
}

func memoryStore() store {
	return store{
		kind:   "memory",
		limits: limiter.NewMemory(limiter.MemoryOptions{}),
		check:  func(context.Context) (string, error) { return "", nil },
		bySlot: func() []string { return nil },
		close:  func() {},

		id: nodeID(), started: time.Now().UTC(),
	}
}

// redisClient returns a client whose calls are bounded by timeout.
func redisClient(c config.Redis, timeout time.Duration) (redis.UniversalClient, error) {
	client, err := redisstore.NewClient(redisstore.ClientConfig{
		Mode: redisstore.Mode(c.Mode), Addrs: c.Addrs, Master: c.Master, TLS: c.TLS.ClientConfig(),
		Username: c.Username, Password: c.Password, SentinelUsername: c.Sentinel.Username, SentinelPassword: c.Sentinel.Password,
		Timeout: timeout, BreakAfter: uint(c.Breaker.After), BreakRest: c.Breaker.Rest,
	})
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return client, nil
}

// clientName returns the name that identifies this process in limits of scope per_instance, also
// after a restart: the addresses on which it listens. It is "", which stands for a random name, if
// the system chooses a port.
func clientName(l config.Listen) string {
	host, err := os.Hostname()
	if err != nil || strings.HasSuffix(l.HTTP, ":0") || strings.HasSuffix(l.HTTPS, ":0") {
		return ""
	}
	return strings.Join([]string{host, l.HTTP, l.HTTPS}, " ")
}

// nodeID returns an id that is unique among the processes that share a store.
func nodeID() string {
	host, _ := os.Hostname()
	return cmp.Or(host, "weir") + "-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
}

// watch checks the store every second. It logs when the store becomes unreachable or reachable, when
// another field of the configuration is the reason, and when Redis may evict counts.
func (s store) watch(ctx context.Context, log zerolog.Logger) {
	var field, warning string
	away := false
	every(ctx, connectTimeout, func() {
		now, err := s.check(ctx)
		if err != nil {
			if f := faultOf(err); (!away || f.field != field) && ctx.Err() == nil {
				logUnusable(log, err)
				field = f.field
			}
			away = true
			return
		}
		if away {
			log.Info().Msg("redis reachable")
		}
		if now != warning && now != "" {
			log.Warn().Str("problem", now).Msg("redis may evict counts")
		}
		away, warning = false, now
	})
}

// A redisFault is a reason why Redis cannot be used that only an operator can remove. It is zero if
// Redis is unreachable for another reason.
type redisFault struct {
	field string // of the configuration
	hint  string
}

// logUnusable logs that the store cannot be used, at level error if it will not become usable by
// itself.
func logUnusable(log zerolog.Logger, err error) {
	f := faultOf(err)
	if f.field == "" {
		e := log.Warn().Err(err)
		if errors.Is(err, redisstore.ErrTLS) { // it was connected to
			e.Str("field", "redis.tls").Str("hint", "redis does not answer to TLS; leave redis.tls out if it has none")
		}
		e.Msg("redis unreachable; limits go by on_store_failure")
		return
	}
	log.Error().Err(err).Str("field", f.field).Str("hint", f.hint).Msg("redis refused; limits go by on_store_failure")
}

// faultOf returns the fault that err reports. The names of errors are those of Redis.
func faultOf(err error) redisFault {
	login := "redis."
	if strings.Contains(err.Error(), "all sentinels") { // the client's words when no sentinel can be asked
		login = "redis.sentinel."
	}
	why := redisstore.WhyNotWritable(err)
	switch {
	case why != "":
		return redisFault{"redis.addrs", "redis replies and refuses writes: " + why}
	case errors.Is(err, redisstore.ErrMode):
		return redisFault{"redis.mode", "write the mode in which redis is deployed: single, sentinel or cluster"}
	case errors.Is(err, redisstore.ErrTLS) && !errors.Is(err, context.DeadlineExceeded):
		return redisFault{"redis.tls", "check that redis uses TLS, and both certificates"}
	case redis.HasErrorPrefix(err, "NOAUTH"):
		return redisFault{login + "password", "redis requires a password"}
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "AUTH"):
		return redisFault{login + "password", "redis does not accept the user with this password"}
	case redis.HasErrorPrefix(err, "NOPERM"):
		return redisFault{login + "username", "the user lacks a right; see Redis in the reference"}
	}
	return redisFault{}
}

// checkWritable returns an error if weir cannot write the files that c configures. This check at the
// start prevents a failure at the first push or certificate.
func checkWritable(c *config.Config) error {
	if keep := c.Reload.Keep; keep != "" {
		if err := tryWrite(filepath.Dir(keep)); err != nil {
			return fmt.Errorf("reload.keep %s cannot be written: %w; name a file in a directory that weir may write to", keep, err)
		}
	}
	if c.Listen.ACME == nil || c.Listen.HTTPS == "" { // certificates are used by HTTPS only
		return nil
	}
	storage := c.Listen.ACME.Storage
	err := os.MkdirAll(storage, 0o700)
	if err == nil {
		err = tryWrite(storage)
	}
	if err != nil {
		return fmt.Errorf("listen.tls.acme.storage %s cannot be written: %w; name a directory that weir may write to, and that outlives restarts", storage, err)
	}
	return nil
}

// tryWrite creates and removes a file in a directory, and returns the error.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".weir-*")
	if err != nil {
		if pe := (*os.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// operatorTimeout is how long all calls to Redis for one request of an operator may take together, once Redis is
// known to be away: enough for one that is back.
const operatorTimeout = 150 * time.Millisecond

// deadlineKey is the context key of the deadline of an operator's request.
type deadlineKey struct{}

// forOperator returns ctx as that of an operator's request, whose deadline is set by its first call that fails, or that
// Redis is known to be away for.
func forOperator(ctx context.Context) context.Context {
	if ctx.Value(deadlineKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, deadlineKey{}, new(atomic.Pointer[time.Time]))
}

// An absence knows by the calls of a client whether Redis is away: as many have failed in a row as open a
// circuit breaker, or one for the same request of an operator. It is a hook of the client, behind its breaker: when that lets a call through to try Redis,
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

// A boundedStore is a store that questions about keys do not wait for while it is known to be away, whoever asks:
// operators, metrics, and changes that wait for it. Its own breaker knows only what decisions have met.
type boundedStore struct {
	*redisstore.Store
	away *absence
}

// Inspect implements limiter.AdminStore.
func (s boundedStore) Inspect(ctx context.Context, claims []limiter.Claim) (in limiter.Inspection, err error) {
	ctx, cancel := context.WithTimeout(forOperator(ctx), connectTimeout+2*operatorTimeout) // asked again, it has little time
	defer cancel()
	err = s.away.call(ctx, func(ctx context.Context) error {
		in, err = s.Store.Inspect(ctx, claims)
		return err
	})
	return in, err
}

// call makes a call, for which an operator does not wait long if Redis is known to be away.
func (a *absence) call(ctx context.Context, next func(context.Context) error) error {
	deadline, isOperators := ctx.Value(deadlineKey{}).(*atomic.Pointer[time.Time])
	if isOperators && (a.failed.Load() >= a.after || deadline.Load() != nil) {
		deadline.CompareAndSwap(nil, new(time.Now().Add(operatorTimeout)))
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, *deadline.Load())
		defer cancel()
	}
	err := next(ctx)
	switch {
	case err == nil, errors.As(err, new(redis.Error)):
		a.failed.Store(0)
	case !errors.Is(err, context.Canceled):
		a.failed.Add(1)
		if isOperators {
			deadline.CompareAndSwap(nil, new(time.Now().Add(operatorTimeout)))
		}
	}
	return err
}
