package cluster

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed fence.lua
var fenceScript string

// ErrDeposed says that another node has taken the lead. Nothing was changed.
var ErrDeposed = errors.New("another node leads")

// A fence stands before what only the leader may change: each script that goes
// through it looks first, in the same step, whether its caller is the one who
// took the lead last. Whoever was stopped, or cut off, and does not know yet that
// the lead is another's is turned away there.
type fence struct {
	rdb redis.UniversalClient
	key string // of the hash that says who leads
}

// fenced makes a script that goes through a fence: KEYS[1] and ARGV[1] are the
// fence's own.
func fenced(text string) *redis.Script { return redis.NewScript(fenceScript + text) }

// run runs s in the name of t. Its error is ErrDeposed, or Redis's.
func (f fence) run(ctx context.Context, s *redis.Script, t Term, keys []string, args ...any) (any, error) {
	reply, err := s.Run(ctx, f.rdb, append([]string{f.key}, keys...), append([]any{t.Token}, args...)...).Result()
	if redis.HasErrorPrefix(err, "DEPOSED") {
		return nil, ErrDeposed
	}
	return reply, err
}
