package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

var (
	//go:embed clock.lua
	clockLua string
	//go:embed bucket.lua
	bucketLua string
	//go:embed giveback.lua
	givebackLua string
	//go:embed counter.lua
	counterLua string
	//go:embed distinct.lua
	distinctLua string
	//go:embed cooldown.lua
	cooldownLua string
	//go:embed decide.lua
	decideLua string
	//go:embed tell.lua
	tellLua string
	//go:embed take.lua
	takeLua string
	//go:embed peek.lua
	peekLua string
	//go:embed refund.lua
	refundLua string
	//go:embed renew.lua
	renewLua string
	//go:embed grant.lua
	grantLua string
	//go:embed reset.lua
	resetLua string
	//go:embed ban.lua
	banLua string
	//go:embed report.lua
	reportLua string
)

// A script is a text and the hash by which Redis remembers it.
type script struct {
	text, hash string
}

func newScript(parts ...string) script {
	text := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(text)) // the name Redis gives it, no secret
	return script{text: text, hash: hex.EncodeToString(sum[:])}
}

// scripts are the texts as Redis runs them: a clock, the algorithms, and then
// what is to be done. A test gives a clock of its own.
type scripts struct {
	takes                                          [3]script // by what they need
	peek, refund, renew, grant, reset, ban, report script
}

func newScripts(clock, prefix string) scripts {
	room := "local ROOM = " + quote(channel(prefix))
	full := func(last ...string) script {
		return newScript(append([]string{clock, room, bucketLua, decideLua, counterLua, givebackLua, distinctLua, cooldownLua, tellLua}, last...)...)
	}
	return scripts{
		takes: [...]script{
			logs:     newScript(clock, bucketLua, decideLua, takeLua),
			counters: newScript(clock, bucketLua, decideLua, counterLua, takeLua),
			all:      full(takeLua),
		},
		peek: full(peekLua), refund: full(refundLua), renew: full(renewLua),
		grant: full(grantLua), reset: full(resetLua), ban: full(banLua),
		report: full(reportLua),
	}
}

// needs says which algorithms a script must know, each one those before it too:
// what a script defines costs time at each call.
type needs byte

const (
	logs     needs = iota // token buckets and concurrent permits
	counters              // fixed and sliding windows, GCRA
	all
)

// needsOf is what a limit needs whose algorithm has this number in the scripts.
func needsOf(kind int) needs {
	switch {
	case kind == int(limiter.TokenBucket), kind == int(limiter.Concurrent):
		return logs
	case kind == int(limiter.FixedWindow), kind == int(limiter.SlidingWindow), kind == int(limiter.GCRA):
		return counters
	}
	return all
}

// take is the leanest script that takes by such algorithms.
func (s *scripts) take(n needs) script { return s.takes[n] }

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
func (s script) run(ctx context.Context, r runner, keys []string, args []any) (any, error) {
	val, err := s.send(ctx, r, "evalsha", s.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, r, "eval", s.text, keys, args)
	}
	return val, err
}

func (s script) send(ctx context.Context, r runner, verb, what string, keys []string, args []any) (any, error) {
	cmd := s.command(ctx, verb, what, keys, args)
	err := r.Process(ctx, cmd)
	return cmd.Val(), err
}

func (s script) command(ctx context.Context, verb, what string, keys []string, args []any) onceCmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return onceCmd{cmd}
}
