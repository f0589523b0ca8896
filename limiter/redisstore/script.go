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
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
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
	return script{text: text, hash: hash, call: string(wire.AppendBulk(wire.AppendBulk(nil, "EVALSHA"), hash))}
}

// scripts are the texts as Redis runs them.
type scripts struct {
	one  [limiter.NumAlgorithms]script // of one algorithm: for one request of one claim
	many [limiter.NumAlgorithms]script // of one algorithm: for several requests, or several claims
	take script                        // for whatever else is asked
	peek script

	refund, renew, grant, reset, ban, report, inspect, note, returnNoted, unnote, confirm script
}

func newScripts(clock, prefix string) scripts {
	channel := "local FREED = " + quote(invalidationChannel(prefix))
	var deciding, changing []string
	for _, f := range families() {
		deciding, changing = append(deciding, f.deciding()), append(changing, f.changing())
	}
	command := func(definitions []string, files ...string) script {
		return newScript(clock, setNow, channel, general(definitions...), luaFiles(files...))
	}
	change := func(files ...string) script {
		return command(changing, append([]string{"general/publish_change"}, files...)...)
	}
	s := scripts{
		take: command(deciding, "number_bytes", "general/note", "command/take"), peek: command(deciding, "command/peek"), inspect: command(changing, "command/inspect"),
		refund: change("command/refund"), renew: change("command/renew"), grant: change("command/grant"),
		reset: change("command/reset"), ban: change("command/ban"), report: change("number_bytes", "command/report"),
		note: command(nil, "number_bytes", "general/note", "command/note"), returnNoted: change("number_bytes", "general/note", "command/return"),
		unnote: command(nil, "number_bytes", "general/note", "command/unnote"), confirm: change("command/confirm"),
	}
	for _, f := range families() {
		one := newScript(clock, setNow, f.withGeneral(inline(f.shape(f.one))))
		many := newScript(clock, setNow, f.withGeneral(inline(f.shape(f.many))))
		for _, a := range f.algorithms {
			s.one[a], s.many[a] = one, many
		}
	}
	return s
}

// choose returns the fastest script that takes what p asks for.
func (s *scripts) choose(p *payload) *script {
	a := bits.TrailingZeros16(p.algorithms)
	switch {
	case bits.OnesCount16(p.algorithms) != 1, len(p.follows)+len(p.notes) > 0, p.repeated && !isPacked(limiter.Algorithm(a)):
		return &s.take
	case p.windowCount == 1 && !p.repeated:
		return &s.one[a]
	}
	return &s.many[a]
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
