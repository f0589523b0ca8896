package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

// A script is a text and the hash by which Redis remembers it.
type script struct {
	text, hash string
	call       string // what begins a command that runs it, as it is sent
}

func newScript(parts ...string) script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) // the name Redis gives it, no secret
	hash := hex.EncodeToString(sum[:])
	return script{text: text, hash: hash, call: string(appendBulk(appendBulk(nil, "EVALSHA"), hash))}
}

// scripts are the texts as Redis runs them: a clock, the algorithms, and then
// what is to be done. A test gives a clock of its own.
type scripts struct {
	lone     [kinds]script // of one algorithm: for one request of one claim
	straight [kinds]script // of one algorithm: for requests of one claim each, of different windows
	several  [kinds]script // of one algorithm: for requests of several claims, of different windows
	again    [kinds]script // of one algorithm: for several requests on one window
	mixed    script
	peek     script

	refund, renew, grant, reset, ban, report, inspect script
}

// kinds is how many algorithms scripts know by number.
const kinds = int(limiter.SlidingLog) + 1

func newScripts(clock, prefix string) scripts {
	room := "local ROOM = " + quote(invalidationChannel(prefix))
	full := func(last ...string) script {
		return newScript(append([]string{
			clock, luaFile("base"), luaFile("whole"), luaFile("limits"), room, luaFile("general/windows"), luaFile("general/box"), luaFile("general/decide"), luaFile("number"), luaFile("bucket"), luaFile("counter"), luaFile("counter_kind"), luaFile("giveback"), luaFile("distinct"),
			luaFile("sliding_log"), luaFile("sliding_log_kind"), luaFile("pause"), luaFile("cooldown"), luaFile("general/tell"),
		}, last...)...)
	}
	s := scripts{
		mixed: full(luaFile("command/take")),
		peek:  full(luaFile("command/peek")), refund: full(luaFile("command/refund")), renew: full(luaFile("command/renew")),
		grant: full(luaFile("command/grant")), reset: full(luaFile("command/reset")), ban: full(luaFile("command/ban")),
		report: full(luaFile("command/report")), inspect: full(luaFile("command/inspect")),
	}
	bucket := parts{one: luaFile("take_token_bucket"), many: luaFile("many_token_bucket"), keys: luaFile("keys_bucket"), kind: luaFile("number") + "\n" + luaFile("bucket")}
	counter := func(one, many string) parts {
		return parts{luaFile("counter"), one, many, luaFile("keys_box"), luaFile("plain_boxes"), luaFile("counter_kind")}
	}
	for a, p := range map[limiter.Algorithm]parts{
		limiter.TokenBucket:   bucket,
		limiter.Concurrent:    bucket,
		limiter.Distinct:      {one: luaFile("take_distinct"), many: luaFile("many_distinct"), keys: luaFile("keys_bucket"), kind: luaFile("distinct")},
		limiter.FixedWindow:   counter(luaFile("take_fixed_window"), luaFile("many_fixed_window")),
		limiter.SlidingWindow: counter(luaFile("take_sliding_window"), luaFile("many_sliding_window")),
		limiter.GCRA:          counter(luaFile("take_gcra"), luaFile("many_gcra")),
		limiter.SlidingLog:    {luaFile("sliding_log"), luaFile("take_sliding_log"), luaFile("many_sliding_log"), luaFile("keys_box"), luaFile("plain_logs"), luaFile("sliding_log_kind")},
		limiter.Cooldown:      {luaFile("sliding_log") + "\n" + luaFile("pause"), luaFile("take_cooldown"), luaFile("many_cooldown"), luaFile("keys_box"), luaFile("plain_logs"), luaFile("cooldown")},
	} {
		s.lone[a], s.straight[a] = p.lone(clock), p.straight(clock)
		s.several[a], s.again[a] = p.several(clock), p.again(clock)
	}
	return s
}

// take is the leanest script that takes what b asks for.
func (s *scripts) take(b *payload) *script {
	if bits.OnesCount16(b.kinds) != 1 {
		return &s.mixed
	}
	switch a := bits.TrailingZeros16(b.kinds); {
	case b.again:
		return &s.again[a]
	case b.several:
		return &s.several[a]
	case b.windowCount == 1:
		return &s.lone[a]
	default:
		return &s.straight[a]
	}
}

// quote writes s as a Lua string, whatever it holds.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\%03d`, c)
	}
	b.WriteByte('"')
	return b.String()
}

// onceCmd is a command that the client never sends again: after a timeout it is
// not known whether Redis ran it, and running it twice would count twice.
type onceCmd struct{ *redis.Cmd }

// NoRetry keeps a client from sending the command a second time.
func (onceCmd) NoRetry() bool { return true }

// runner is the part of a client that a store needs.
type runner interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run has Redis run s once: by its hash, and by its text if Redis does not know
// the hash, for then nothing ran the first time.
func (s *script) run(ctx context.Context, r runner, keys []string, args []any) (any, error) {
	val, err := s.send(ctx, r, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, r, "eval", s.text, keys, args)
	}
	return val, err
}

func (s *script) send(ctx context.Context, r runner, verb, what string, keys []string, args []any) (any, error) {
	cmd := s.command(ctx, verb, what, keys, args)
	err := r.Process(ctx, cmd)
	return cmd.Val(), err
}

func (s *script) command(ctx context.Context, verb, what string, keys []string, args []any) onceCmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return onceCmd{cmd}
}
