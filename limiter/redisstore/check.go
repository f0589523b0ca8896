package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

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
		if n, err := cluster.MasterForKey(ctx, s.names.keys(claim)[0]); err != nil || n.Options().Addr == node.Options().Addr {
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
	_, err := s.scripts.get("one", b.algorithms).run(ctx, node, b.keyNames(), b.args())
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
	info, err := server.Result()
	if err == nil && info == "" { // a command that was not sent has no error of its own
		err = notSent
	}
	if err != nil {
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
