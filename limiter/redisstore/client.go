package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// A Mode is the kind of a Redis deployment.
type Mode string

// The modes.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

// ErrConfig reports that a ClientConfig is not valid.
var ErrConfig = errors.New("redis config not valid")

// ClientConfig is the configuration of a client.
type ClientConfig struct {
	Mode   Mode     // Single when empty
	Addrs  []string // host:port; in mode Sentinel those of the sentinels
	Master string   // name of the master; only in mode Sentinel

	Username, Password string
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername, SentinelPassword string
	DB                                 int         // not in mode Cluster
	TLS                                *tls.Config // nil means no TLS

	// Timeout bounds each read and write; DefaultTimeout when zero. Opening a connection
	// may take five times as long, or up to a second if that is less.
	Timeout time.Duration
	// BreakAfter failures in a row open the breaker of a node for BreakRest;
	// 5 and 2 s when zero. A failure is that nobody is there, or answers in time; and
	// one that says to try again, or cuts connections, if it has done nothing else for
	// BreakRest.
	BreakAfter uint
	BreakRest  time.Duration
}

const (
	defaultBreakAfter = 5
	defaultBreakRest  = 2 * time.Second
)

// NewClient returns a client with the settings that a limiter needs: commands are not
// retried, a call ends at the deadline of its context, dialing an unreachable Redis fails
// immediately, buffers are small, and each node has a circuit breaker. It does not
// connect. The caller must close it. Errors wrap ErrConfig.
func NewClient(c ClientConfig) (redis.UniversalClient, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.BreakAfter == 0 {
		c.BreakAfter = defaultBreakAfter
	}
	if c.BreakRest <= 0 {
		c.BreakRest = defaultBreakRest
	}
	guarded := func(client *redis.Client) *redis.Client {
		b := newBreaker(c.BreakAfter, c.BreakRest)
		if c.Mode == Sentinel {
			b.masters = &wire.Masters{}
		}
		client.AddHook(b)
		return client
	}
	o := c.options()
	switch c.Mode {
	case Sentinel:
		return guarded(redis.NewFailoverClient(o.Failover())), nil
	case Cluster:
		cluster := o.Cluster()
		cluster.NewClient = func(o *redis.Options) *redis.Client {
			node := guarded(redis.NewClient(o))
			host, _, _ := net.SplitHostPort(c.reachable(o.Addr))
			node.AddHook(endpoints{host})
			return node
		}
		return redis.NewClusterClient(cluster), nil
	}
	return guarded(redis.NewClient(o.Simple())), nil
}

func (c ClientConfig) check() error {
	switch {
	case c.Mode != "" && c.Mode != Single && c.Mode != Sentinel && c.Mode != Cluster:
		return fmt.Errorf("%w: mode %q; write single, sentinel or cluster", ErrConfig, c.Mode)
	case len(c.Addrs) == 0:
		return fmt.Errorf("%w: no address; write host:port", ErrConfig)
	case (c.Mode == "" || c.Mode == Single) && len(c.Addrs) > 1:
		return fmt.Errorf("%w: mode single has one address, not %d", ErrConfig, len(c.Addrs))
	case c.Mode == Sentinel && c.Master == "":
		return fmt.Errorf("%w: mode sentinel needs the name of the master", ErrConfig)
	case c.Mode == Cluster && c.DB != 0:
		return fmt.Errorf("%w: a cluster has no database %d", ErrConfig, c.DB)
	}
	for _, a := range c.Addrs {
		if i := strings.LastIndexByte(a, ':'); i < 1 || i == len(a)-1 {
			return fmt.Errorf("%w: address %q; write host:port", ErrConfig, a)
		}
	}
	return nil
}

// ErrTLS reports that Redis was reached, and that the TLS handshake failed. A server without
// TLS usually does not reply to it.
var ErrTLS = errors.New("tls handshake with redis failed")

// dialTimeout bounds the time for opening a connection.
func (c ClientConfig) dialTimeout() time.Duration {
	return max(c.Timeout, min(5*c.Timeout, time.Second))
}

// dial opens a connection, for the client. Unlike the dialer of the client it says whether
// TLS has failed, and it bounds what a reply may announce.
func (c ClientConfig) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.dialTimeout())
	defer cancel()
	keepAlive := net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3} // as the client's dialer
	addr = c.reachable(addr)
	plain, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if c.TLS == nil {
		return wire.Bounded(plain), nil
	}
	config := c.TLS
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return wire.Bounded(conn), nil
}

// reachable returns addr, at the host of the configured addresses if a node has redirected the client to another
// and does not say at which host that is.
func (c ClientConfig) reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !isUnknownHost(host) {
		return addr
	}
	host, _, _ = net.SplitHostPort(c.Addrs[0])
	return net.JoinHostPort(host, port)
}

func (c ClientConfig) options() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		// A client of a cluster adds to its own.
		Addrs: slices.Clone(c.Addrs), MasterName: c.Master, DB: c.DB,
		Username: c.Username, Password: c.Password,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		TLSConfig: c.TLS,

		MaxRetries:            -1, // 0 would mean three
		ContextTimeoutEnabled: true,
		Dialer:                c.dial,
		DialTimeout:           c.dialTimeout(),
		DialerRetries:         1,
		ReadTimeout:           c.Timeout,
		WriteTimeout:          c.Timeout,
		PoolTimeout:           c.Timeout,
		MinIdleConns:          2,
		ConnMaxIdleTime:       defaultIdleLimit,
		ConnMaxLifetime:       30 * time.Minute,
		ConnMaxLifetimeJitter: 5 * time.Minute,
		ReadBufferSize:        8 << 10, WriteBufferSize: 8 << 10,
		PipelineReadBufferSize: 32 << 10, PipelineWriteBufferSize: 32 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}
