package redisstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// ErrVersion reports that the server is too old for the scripts of this package.
var ErrVersion = errors.New("redis too old")

// Check checks the version of every master: at least Redis 6.2 or Valkey 7.2. Errors wrap
// ErrVersion or limiter.ErrUnavailable.
func (s *Store) Check(ctx context.Context) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return checkNode(ctx, node) })
	}
	return checkNode(ctx, s.client)
}

func checkNode(ctx context.Context, node redis.Cmdable) error {
	info, err := node.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask for the version: %w: %w", limiter.ErrUnavailable, err)
	}
	return checkVersion(info)
}

// checkVersion checks the server section of INFO. Valkey also has a redis_version, for
// compatibility with clients.
func checkVersion(info string) error {
	fields := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		if name, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), ":"); ok {
			fields[name] = value
		}
	}
	name, least, version := "Redis", [2]int{6, 2}, fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		name, least, version = "Valkey", [2]int{7, 2}, v
	}
	major, minor, ok := parseVersion(version)
	if !ok {
		return fmt.Errorf("%w: the server's version %q is not readable", ErrVersion, version)
	}
	if major < least[0] || major == least[0] && minor < least[1] {
		return fmt.Errorf("%w: %s %s; the minimum is %d.%d", ErrVersion, name, version, least[0], least[1])
	}
	return nil
}

func parseVersion(s string) (major, minor int, ok bool) {
	a, rest, _ := strings.Cut(s, ".")
	b, _, _ := strings.Cut(rest, ".")
	major, err1 := strconv.Atoi(a)
	minor, err2 := strconv.Atoi(b)
	return major, minor, err1 == nil && err2 == nil
}
