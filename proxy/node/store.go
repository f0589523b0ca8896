package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy"
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
	nodes   func() int
	agree   proxy.Agree
	cluster *cluster.Node // nil without a cluster
	// reported is redisstore.Store.Reported; nil without a cluster.
	reported func() (heard, lost int64)
	// check is redisstore.Store.Check.
	check func(ctx context.Context) (warning string, err error)
	run   func(ctx context.Context, address string) // runs until ctx is done; address is that of the admin API
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
	member := cluster.Join(coordination, cluster.Options{Prefix: c.Redis.Prefix, ID: id, Version: version, Source: string(c.Reload.Source), Seal: bundle.NewSeal(c.Privacy)})
	s := store{
		kind:     "redis",
		limits:   boundedStore{limits, away},
		nodes:    member.Live,
		agree:    member.Agree,
		cluster:  member,
		reported: limits.Reported,
		check:    redisstore.New(coordination, redisstore.Options{Prefix: c.Redis.Prefix, Timeout: connectTimeout, CachedRefusals: -1}).Check,
		close:    func() { limits.Close(); decisions.Close(); coordination.Close() },

		id: id, started: time.Now().UTC(), client: coordination, prefix: c.Redis.Prefix,
	}
	s.run = func(ctx context.Context, address string) {
		var all sync.WaitGroup
		all.Go(func() { member.Run(ctx, address) })
		all.Go(func() { s.watch(ctx, log) })
		all.Wait()
	}
	return s, nil
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
		run:    func(context.Context, string) {},
		close:  func() {},

		id: nodeID(), started: time.Now().UTC(),
	}
}

// redisClient returns a client whose calls are bounded by timeout.
func redisClient(c config.Redis, timeout time.Duration) (redis.UniversalClient, error) {
	client, err := redisstore.NewClient(redisstore.ClientConfig{
		Mode: redisstore.Mode(c.Mode), Addrs: c.Addrs, Master: c.Master, TLS: redisTLS(c.TLS),
		Username: c.Username, Password: c.Password, SentinelUsername: c.Sentinel.Username, SentinelPassword: c.Sentinel.Password,
		Timeout: timeout, BreakAfter: uint(c.Breaker.After), BreakRest: c.Breaker.Rest,
	})
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return client, nil
}

// redisTLS returns the TLS configuration for Redis; nil without TLS.
func redisTLS(c *config.UpstreamTLS) *tls.Config {
	if c == nil {
		return nil
	}
	made := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots, ServerName: c.ServerName}
	if c.Certificate != nil {
		made.Certificates = []tls.Certificate{*c.Certificate}
	}
	return made
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
	host, err := os.Hostname()
	if err != nil {
		host = "weir"
	}
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
}
