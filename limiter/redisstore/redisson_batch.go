package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// ErrRedisson reports that a limiter shared with Redisson cannot be used: a key has another
// type, the rate or interval is not valid, or the entries have several formats. The error
// says which. Nothing was taken or written. It also wraps limiter.ErrUnavailable, but is
// no evidence about the health of Redis.
var ErrRedisson = errors.New("limiter shared with Redisson cannot be used")

// redissonScripts are the scripts for a limiter shared with Redisson. Such a limiter has a
// script call of its own, because other programs write its keys, and their errors must
// not affect other claims.
type redissonScripts struct {
	take, peek, refund, grant, reset, report, inspect script
	left, set                                         script // for handles
}

// newRedissonScripts returns the scripts for limiters with a log, or for those of the
// oldest format, which count a window.
func newRedissonScripts(clock, prefix string, f limiter.RedissonFormat) redissonScripts {
	full := func(dry bool, last string) script {
		parts := []string{fmt.Sprintf("local FREED, DRY = %s, %t", quote(invalidationChannel(prefix)), dry), clock, setNow, luaFiles("base", "redisson/limiter", "number_bytes")}
		if f == limiter.RedissonWindow {
			parts = append(parts, luaFiles("redisson/window"))
		} else {
			parts = append(parts, luaFiles("redisson/pack", "redisson/count", "redisson/log"))
		}
		return newScript(append(parts, last)...)
	}
	return redissonScripts{
		take: full(false, luaFiles("redisson/decide")), peek: full(true, luaFiles("redisson/decide")), refund: full(false, luaFiles("redisson/refund")),
		grant: full(false, luaFiles("redisson/grant")), reset: full(false, luaFiles("redisson/reset")), report: full(false, luaFiles("redisson/report")),
		inspect: full(true, luaFiles("redisson/inspect")),
		left:    full(true, luaFiles("redisson/available")), set: full(false, luaFiles("redisson/set_rate")),
	}
}

// redisson returns the scripts for a format.
func (s *Store) redisson(f limiter.RedissonFormat) *redissonScripts {
	if f == limiter.RedissonWindow {
		return &s.redissonWindow
	}
	return &s.redissonLog
}

// redissonKeys is the number of keys of a Redisson limiter.
const redissonKeys = 5

// redissonKeysOf returns the keys of a limiter in the order of Redisson.
func redissonKeysOf(name, client string) []string {
	value, permits := redissonKey(name, "value"), redissonKey(name, "permits")
	return []string{name, value, value + ":" + client, permits, permits + ":" + client}
}

// redissonArgs returns the script arguments: the limit that applies if the limiter has no
// config, and the requests.
func redissonArgs(c limiter.Claim, rest ...any) []any {
	r := c.Limit.Rate
	return append([]any{r.Count, r.Window.Milliseconds(), int(c.Limit.Scope), c.RedissonFormat.String()}, rest...)
}

// A redissonBatch is the content of one script call about a shared limiter.
type redissonBatch struct {
	claim    limiter.Claim // the first claim; all have the same RedissonName
	requests []byte
}

// request appends a request for lua/redisson/decide.lua.
func (b *redissonBatch) request(id [16]byte, cost int64) {
	b.requests = append(b.requests, id[:idBytes]...)
	b.requests = binary.LittleEndian.AppendUint32(b.requests, uint32(cost))
}

// peekRedisson is Peek for one shared limiter.
func (s *Store) peekRedisson(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	c := claims[0]
	b := redissonBatch{claim: c}
	b.request([16]byte{}, c.Cost)
	reply, err := s.runRedisson(ctx, s.redisson(c.RedissonFormat).peek, c, b.requests)
	if err == nil {
		err = readOne(reply, claims, d)
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w: %w", c.RedissonName, limiter.ErrUnavailable, err)
	}
	return nil
}

// changeRedisson runs a script that changes the limiter of c, and returns its reply, a
// number that is not negative.
func (s *Store) changeRedisson(ctx context.Context, sc script, c limiter.Claim, rest ...any) (int64, error) {
	reply, err := s.runRedisson(ctx, sc, c, rest...)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	n, ok := reply.(int64)
	if !ok || n < 0 {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, wire.ErrReply)
	}
	return n, nil
}

func (s *Store) runRedisson(ctx context.Context, sc script, c limiter.Claim, rest ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := sc.run(withRedissonCall(ctx), s.client, s.names.keys(c), redissonArgs(c, rest...))
	if err != nil {
		s.reloadCluster()
	}
	return reply, redissonError(err)
}

// redissonError converts a script's error to ErrRedisson.
func redissonError(err error) error {
	if !redis.HasErrorPrefix(err, "UNSHARED") {
		return err
	}
	return fmt.Errorf("%w: %s", ErrRedisson, strings.TrimPrefix(err.Error(), "UNSHARED "))
}
