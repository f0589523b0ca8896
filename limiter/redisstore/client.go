package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-proxy/weir/limiter"
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

// NewClient returns a client with the settings that a limiter needs: no command is retried, or in
// a cluster no script that may have run and is not in a pipeline, a call ends at the deadline of
// its context, dialing an unreachable Redis fails immediately, buffers are small, and each node
// has a circuit breaker. It does not connect. The caller must close it. Errors wrap ErrConfig.
func NewClient(c ClientConfig) (redis.UniversalClient, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Timeout = cmp.Or(max(0, c.Timeout), DefaultTimeout)
	c.BreakAfter, c.BreakRest = cmp.Or(c.BreakAfter, defaultBreakAfter), cmp.Or(max(0, c.BreakRest), defaultBreakRest)
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
			node.AddHook(endpoints{host: host})
			return node
		}
		client := redis.NewClusterClient(cluster)
		client.AddHook(atMostOnce{})
		return client, nil
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

// An endpoints hook reads which nodes of a cluster have which slots. A node may leave out the
// host of an endpoint, as with cluster-preferred-endpoint-type unknown-endpoint, or with hostname where none
// is set: then it is the host that was asked. The go-redis client fails on such a reply.
type endpoints struct {
	atMostOnce
	host string
}

// isUnknownHost reports whether a node names host for an endpoint whose host it does not tell.
func isUnknownHost(host string) bool { return host == "" || host == "?" }

// ProcessHook implements redis.Hook.
func (e endpoints) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		typed, ok := cmd.(*redis.ClusterSlotsCmd)
		if !ok {
			return next(ctx, cmd)
		}
		plain := redis.NewCmd(ctx, cmd.Args()...)
		err := next(ctx, plain)
		if err == nil {
			var slots []redis.ClusterSlot
			slots, err = e.read(plain.Val())
			typed.SetVal(slots)
		}
		typed.SetErr(err)
		return err
	}
}

// read reads the reply to CLUSTER SLOTS.
func (e endpoints) read(reply any) ([]redis.ClusterSlot, error) {
	rows, ok := reply.([]any)
	slots := make([]redis.ClusterSlot, len(rows))
	for i := range rows {
		row, _ := rows[i].([]any)
		if len(row) < 2 {
			return nil, wire.ErrReply
		}
		first, ok1 := row[0].(int64)
		last, ok2 := row[1].(int64)
		ok = ok && ok1 && ok2
		slots[i] = redis.ClusterSlot{Start: int(first), End: int(last)}
		for _, value := range row[2:] {
			node, _ := value.([]any)
			if len(node) < 2 {
				return nil, wire.ErrReply
			}
			host, _ := node[0].(string) // nil if it is unknown
			if isUnknownHost(host) {
				host = e.host
			}
			port, isNumber := node[1].(int64)
			ok = ok && isNumber
			slots[i].Nodes = append(slots[i].Nodes, redis.ClusterNode{Addr: net.JoinHostPort(host, strconv.FormatInt(port, 10))})
		}
	}
	if !ok {
		return nil, wire.ErrReply
	}
	return slots, nil
}

// An atMostOnce hook keeps the client of a cluster, which retries whatever its settings are, from sending a script again that
// a node may have run. It leaves other commands, and pipelines, to the client, which knows them by their types.
type atMostOnce struct{}

// DialHook implements redis.Hook.
func (atMostOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (atMostOnce) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			cmd = refusedCmd{cmd}
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (atMostOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A refusedCmd is a script that is retried only if no node has run it: it was refused, or there was no connection.
type refusedCmd struct{ redis.Cmder }

// NoRetry implements redis.Cmder.
func (c refusedCmd) NoRetry() bool {
	_, refused := errors.AsType[redis.Error](c.Err())
	network, failed := errors.AsType[*net.OpError](c.Err())
	return c.Cmder.NoRetry() || !refused && !(failed && network.Op == "dial")
}

// In a cluster the note of a permit and the permit are on different masters, each with replicas of its own. If
// a permit is returned and the master of its note then fails before a replica knows that the note is gone, the note is
// there again, and a second return of the subject returns the permit of somebody else, whose bucket is the same, and
// confirms the subject once more. So the note is removed on the replicas, too, before its permits are returned. If they do
// not confirm that in time, nothing is returned: the permits stay taken until they expire.
//
// What remains is a replica that was not connected and becomes master all the same, as
// cluster-replica-validity-factor 0 allows. Then each note that it still has may be returned once more.

// errNotReplicated reports that replicas did not confirm a write in time.
var errNotReplicated = errors.New("replicas have not confirmed in time that the note is gone")

// unnote takes parts out of a note, and waits until the connected replicas have done so, unless the slot moves.
func (s *Store) unnote(ctx context.Context, key string, args []any) ([]any, error) {
	node, err := s.client.(*redis.ClusterClient).MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	conn, unnote := node.Conn(), s.scripts.get(scriptName{name: "unnote"})
	defer conn.Close()
	reply, err := unnote.run(ctx, conn, []string{key}, args)
	isMoving := hasCode(err, "MOVED", "ASK")
	if isMoving {
		reply, err = unnote.run(ctx, s.client, []string{key}, args)
	}
	parts, ok := reply.([]any)
	switch {
	case err == nil && !ok:
		err = wire.ErrReply
	case len(parts) > 0 && !isMoving:
		err = awaitReplicas(ctx, conn, s.timeout/2)
	}
	return parts, err
}

// awaitReplicas waits until all connected replicas have what was written on conn. A user who may not ask does not wait.
func awaitReplicas(ctx context.Context, conn *redis.Conn, timeout time.Duration) error {
	info, err := conn.Info(ctx, "replication").Result()
	replicas, confirmed := int64(strings.Count(info, "state=online")), int64(0)
	if replicas > 0 {
		confirmed, err = conn.Wait(ctx, int(replicas), timeout).Result()
	}
	if _, isReply := errors.AsType[redis.Error](err); isReply {
		return nil
	}
	if err == nil && confirmed < replicas {
		err = errNotReplicated
	}
	return err
}

var (
	// ErrVersion reports that the server is too old for the scripts of this package.
	ErrVersion = errors.New("redis too old")
	// ErrMode reports that the deployment is not of the kind that the client is for.
	ErrMode = errors.New("redis is not deployed in this mode")
	// ErrNotWritable reports that the server replies, and refuses writes.
	ErrNotWritable = errors.New("redis refuses writes")
)

// Check checks every master: at least Redis 6.2 or Valkey 7.2, deployed in the mode of the
// client, and that the user may write counts by a script. If it is usable but may evict
// counts, warning says so. Errors wrap ErrVersion, ErrMode, ErrNotWritable or limiter.ErrUnavailable.
func (s *Store) Check(ctx context.Context) (warning string, err error) {
	switch client := s.client.(type) {
	case *redis.Client:
		warning, err = s.checkNode(ctx, client, limiter.Key{})
	case *redis.ClusterClient:
		var mu sync.Mutex // guards warning
		err = client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			w, err := s.checkNode(ctx, node, s.keyOn(ctx, client, node))
			mu.Lock()
			defer mu.Unlock()
			if w != "" {
				warning = w + " at " + node.Options().Addr
			}
			return err
		})
	}
	return warning, modeError(err)
}

// keyOn returns a key that is on node.
func (s *Store) keyOn(ctx context.Context, cluster *redis.ClusterClient, node *redis.Client) (k limiter.Key) {
	for i := range uint32(1 << 14) {
		binary.LittleEndian.PutUint32(k[:], i)
		claim := probeClaim(k)
		if n, err := cluster.MasterForKey(ctx, string(s.names.append(nil, &claim, 0))); err != nil || n.Options().Addr == node.Options().Addr {
			break
		}
	}
	return k
}

// probeClaim is what a probe takes of k.
func probeClaim(k limiter.Key) limiter.Claim {
	rate := limiter.Rate{Count: limiter.MaxCount, Window: time.Second}
	return limiter.Claim{Key: k, Cost: 1, Limit: &limiter.Limit{Name: "check", Algorithm: limiter.FixedWindow, Rate: rate}}
}

// probeWrite takes a permit of k, which shows whether Redis decides and accepts writes.
func (s *Store) probeWrite(ctx context.Context, node runner, k limiter.Key) error {
	claim := probeClaim(k)
	b := newPayload(s.names, []limiter.Claim{claim})
	b.request(newID(), 1)
	b.claim(&claim, 1)
	_, err := s.scripts.get(scriptName{name: "one", algorithms: b.algorithms}).run(ctx, node, b.keyNames(), b.args())
	return err
}

// modeError makes an error an ErrMode if a server says that it is not of the mode of the
// client.
func modeError(err error) error {
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error())
	if strings.Contains(text, "cluster support disabled") || strings.Contains(text, "unknown command 'cluster") ||
		strings.Contains(text, "unknown command 'sentinel'") {
		return fmt.Errorf("%w: %w", ErrMode, err)
	}
	return err
}

// checkNode checks one server, which has k. First it writes: a Redis that only reads has to look like one that does not reply
// to its circuit breaker. Two calls of INFO work with all versions; one with two sections only from Redis 7.0 on.
func (s *Store) checkNode(ctx context.Context, node *redis.Client, k limiter.Key) (warning string, err error) {
	failed := s.probeWrite(ctx, node, k)
	if why := WhyNotWritable(failed); why != "" {
		return "", fmt.Errorf("%w: %s: %w", ErrNotWritable, why, failed)
	}
	if failed != nil {
		failed = fmt.Errorf("check whether Redis decides: %w: %w", limiter.ErrUnavailable, failed)
		if evidenceOf(failed) != evidenceUp {
			return "", failed
		}
	}
	call := node.Pipeline()
	server, memory := call.Info(ctx, "server"), call.Info(ctx, "memory")
	_, notSent := call.Exec(ctx)
	info := server.Val()
	if err := cmp.Or(server.Err(), notSent); err != nil && info == "" { // a command that was not sent has no error of its own
		return "", fmt.Errorf("read the version of Redis: %w: %w", limiter.ErrUnavailable, err)
	}
	if err := checkVersion(info); err != nil {
		return "", err
	}
	if mode := infoFields(info)["redis_mode"]; mode == "sentinel" || mode == "cluster" && !s.isCluster {
		return "", fmt.Errorf("%w: the server is part of a deployment in mode %s", ErrMode, mode)
	}
	m := infoFields(memory.Val()) // empty if the user may not see it
	if policy := m["maxmemory_policy"]; policy != "" && policy != "noeviction" && m["maxmemory"] != "0" {
		warning = "redis may evict counts: its maxmemory-policy is " + policy + "; set noeviction"
	}
	return warning, failed
}

// infoFields returns the fields of a section of INFO.
func infoFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// checkVersion checks the server section of INFO. Valkey also has a redis_version, for
// compatibility with clients.
func checkVersion(info string) error {
	fields := infoFields(info)
	name, least, version := "Redis", [2]int{6, 2}, fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		name, least, version = "Valkey", [2]int{7, 2}, v
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("%w: the server's version %q is not readable", ErrVersion, version)
	}
	if major < least[0] || major == least[0] && minor < least[1] {
		return fmt.Errorf("%w: %s %s; the minimum is %d.%d", ErrVersion, name, version, least[0], least[1])
	}
	return nil
}
