package cluster

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed fence.lua
var fenceScript string

// ErrDeposed reports that another node has become the leader. Nothing was
// changed.
var ErrDeposed = errors.New("another node is the leader")

// A fence protects data that only the leader may change (fencing token): each
// script first checks, in the same step, whether its caller is the latest leader.
// A former leader that was suspended or partitioned, and does not know yet that
// it lost the leadership, is rejected.
type fence struct {
	rdb redis.UniversalClient
	key string // of the hash with the current leader
}

// fenced returns text as a script with the check of a fence; KEYS[1] and
// ARGV[1] belong to the fence.
func fenced(text string) *redis.Script { return redis.NewScript(fenceScript + text) }

// run runs s with the token of t. Its error is ErrDeposed, or an error of
// Redis.
func (f fence) run(ctx context.Context, s *redis.Script, t Term, keys []string, args ...any) (any, error) {
	reply, err := s.Run(ctx, f.rdb, append([]string{f.key}, keys...), append([]any{t.Token}, args...)...).Result()
	if redis.HasErrorPrefix(err, "DEPOSED") {
		return nil, ErrDeposed
	}
	return reply, err
}
