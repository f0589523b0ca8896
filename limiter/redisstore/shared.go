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

// ErrShared reports that a limiter shared with Redisson cannot be used: a key has another
// type, the rate or interval is not valid, or the entries have several formats. The error
// says which. Nothing was taken or written. It also wraps limiter.ErrUnavailable, but is
// no evidence about the health of Redis.
var ErrShared = errors.New("limiter shared with Redisson cannot be used")

// sharedScripts are the scripts for a limiter shared with Redisson. Such a limiter has a
// script call of its own, because other programs write its keys, and their errors must
// not affect other claims.
type sharedScripts struct {
	take, peek, refund, grant, reset, report, inspect script
	left, set                                         script // for handles
}

// newSharedScripts returns the scripts for limiters with a log, or for those of the
// oldest format, which count a window.
func newSharedScripts(clock, prefix string, f limiter.RedissonFormat) sharedScripts {
	full := func(dry bool, last string) script {
		parts := []string{fmt.Sprintf("local ROOM, DRY = %s, %t", quote(invalidationChannel(prefix)), dry), clock, setNow, luaFiles("base", "redisson/limiter", "number_bytes")}
		if f == limiter.RedissonWindow {
			parts = append(parts, luaFiles("redisson/window"))
		} else {
			parts = append(parts, luaFiles("redisson/pack", "redisson/count", "redisson/log"))
		}
		return newScript(append(parts, last)...)
	}
	return sharedScripts{
		take: full(false, luaFiles("redisson/decide")), peek: full(true, luaFiles("redisson/decide")), refund: full(false, luaFiles("redisson/refund")),
		grant: full(false, luaFiles("redisson/grant")), reset: full(false, luaFiles("redisson/reset")), report: full(false, luaFiles("redisson/report")),
		inspect: full(true, luaFiles("redisson/inspect")),
		left:    full(true, luaFiles("redisson/available")), set: full(false, luaFiles("redisson/set_rate")),
	}
}

// shared returns the scripts for a format.
func (s *Store) shared(f limiter.RedissonFormat) *sharedScripts {
	if f == limiter.RedissonWindow {
		return &s.sharedWindow
	}
	return &s.sharedLog
}

// redissonKeys is the number of keys of a Redisson limiter.
const redissonKeys = 5

// sharedKeys returns the keys of a limiter in the order of Redisson.
func sharedKeys(name, client string) []string {
	value, permits := redissonKey(name, "value"), redissonKey(name, "permits")
	return []string{name, value, value + ":" + client, permits, permits + ":" + client}
}

// sharedArgs returns the script arguments: the limit that applies if the limiter has no
// config, and the requests.
func sharedArgs(c limiter.Claim, rest ...any) []any {
	r := c.Limit.Rate
	return append([]any{r.Count, r.Window.Milliseconds(), int(c.Limit.Scope), c.RedissonFormat.String()}, rest...)
}

// A sharedBatch is the content of one script call about a shared limiter.
type sharedBatch struct {
	claim    limiter.Claim // the first claim; all have the same RedissonName
	requests []byte
}

// request appends a request for lua/redisson/decide.lua.
func (b *sharedBatch) request(id [16]byte, cost int64) {
	b.requests = append(b.requests, id[:idBytes]...)
	b.requests = binary.LittleEndian.AppendUint32(b.requests, uint32(cost))
}

// peekShared is Peek for one shared limiter.
func (s *Store) peekShared(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	c := claims[0]
	b := sharedBatch{claim: c}
	b.request([16]byte{}, c.Cost)
	reply, err := s.runShared(ctx, s.shared(c.RedissonFormat).peek, c, b.requests)
	if err == nil {
		err = readOne(reply, claims, d)
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w: %w", c.RedissonName, limiter.ErrUnavailable, err)
	}
	return nil
}

// changeShared runs a script that changes the limiter of c, and returns its reply, a
// number that is not negative.
func (s *Store) changeShared(ctx context.Context, sc script, c limiter.Claim, rest ...any) (int64, error) {
	reply, err := s.runShared(ctx, sc, c, rest...)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
	}
	n, ok := reply.(int64)
	if !ok || n < 0 {
		return 0, fmt.Errorf("%w: %w", limiter.ErrUnavailable, wire.ErrReply)
	}
	return n, nil
}

func (s *Store) runShared(ctx context.Context, sc script, c limiter.Claim, rest ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := sc.run(withSharedCall(ctx), s.client, s.names.keys(c), sharedArgs(c, rest...))
	if err != nil {
		s.reloadCluster()
	}
	return reply, sharedError(err)
}

// sharedError converts a script's error to ErrShared.
func sharedError(err error) error {
	if !redis.HasErrorPrefix(err, "UNSHARED") {
		return err
	}
	return fmt.Errorf("%w: %s", ErrShared, strings.TrimPrefix(err.Error(), "UNSHARED "))
}
