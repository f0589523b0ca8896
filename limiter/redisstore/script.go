package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
)

var (
	//go:embed clock.lua
	clockLua string
	//go:embed base.lua
	baseLua string
	//go:embed whole.lua
	wholeLua string
	//go:embed straight.lua
	straightLua string
	//go:embed keys_box.lua
	keysBoxLua string
	//go:embed keys_bucket.lua
	keysBucketLua string
	//go:embed pieces.lua
	piecesLua string
	//go:embed lone.lua
	loneLua string
	//go:embed lone_limit.lua
	loneLimitLua string
	//go:embed number.lua
	numberLua string
	//go:embed bucket.lua
	bucketLua string
	//go:embed take_token_bucket.lua
	takeTokenBucketLua string
	//go:embed giveback.lua
	givebackLua string
	//go:embed counter.lua
	counterLua string
	//go:embed counter_kind.lua
	counterKindLua string
	//go:embed take_fixed_window.lua
	takeFixedWindowLua string
	//go:embed take_sliding_window.lua
	takeSlidingWindowLua string
	//go:embed take_gcra.lua
	takeGCRALua string
	//go:embed distinct.lua
	distinctLua string
	//go:embed take_distinct.lua
	takeDistinctLua string
	//go:embed many_distinct.lua
	manyDistinctLua string
	//go:embed cooldown.lua
	cooldownLua string
	//go:embed take_cooldown.lua
	takeCooldownLua string
	//go:embed pause.lua
	pauseLua string
	//go:embed many_cooldown.lua
	manyCooldownLua string
	//go:embed sliding_log.lua
	slidingLogLua string
	//go:embed sliding_log_kind.lua
	slidingLogKindLua string
	//go:embed take_sliding_log.lua
	takeSlidingLogLua string
	//go:embed one.lua
	oneLua string
	//go:embed limits.lua
	limitsLua string
	//go:embed box.lua
	boxLua string
	//go:embed answer.lua
	answerLua string
	//go:embed several.lua
	severalLua string
	//go:embed several_boxes.lua
	severalBoxesLua string
	//go:embed again.lua
	againLua string
	//go:embed ones.lua
	onesLua string
	//go:embed many_head.lua
	manyHeadLua string
	//go:embed many_boxes.lua
	manyBoxesLua string
	//go:embed plain_boxes.lua
	plainBoxesLua string
	//go:embed plain_logs.lua
	plainLogsLua string
	//go:embed many_token_bucket.lua
	manyTokenBucketLua string
	//go:embed many_fixed_window.lua
	manyFixedWindowLua string
	//go:embed many_sliding_window.lua
	manySlidingWindowLua string
	//go:embed many_gcra.lua
	manyGCRALua string
	//go:embed many_sliding_log.lua
	manySlidingLogLua string
	//go:embed windows.lua
	windowsLua string
	//go:embed decide.lua
	decideLua string
	//go:embed tell.lua
	tellLua string
	//go:embed take.lua
	takeLua string
	//go:embed peek.lua
	peekLua string
	//go:embed inspect.lua
	inspectLua string
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
			clock, baseLua, wholeLua, limitsLua, room, windowsLua, boxLua, decideLua, numberLua, bucketLua, counterLua, counterKindLua, givebackLua, distinctLua,
			slidingLogLua, slidingLogKindLua, pauseLua, cooldownLua, tellLua,
		}, last...)...)
	}
	s := scripts{
		mixed: full(takeLua),
		peek:  full(peekLua), refund: full(refundLua), renew: full(renewLua),
		grant: full(grantLua), reset: full(resetLua), ban: full(banLua),
		report: full(reportLua), inspect: full(inspectLua),
	}
	bucket := parts{one: takeTokenBucketLua, many: manyTokenBucketLua, keys: keysBucketLua, kind: numberLua + "\n" + bucketLua}
	counter := func(one, many string) parts {
		return parts{counterLua, one, many, keysBoxLua, plainBoxesLua, counterKindLua}
	}
	for a, p := range map[limiter.Algorithm]parts{
		limiter.TokenBucket:   bucket,
		limiter.Concurrent:    bucket,
		limiter.Distinct:      {one: takeDistinctLua, many: manyDistinctLua, keys: keysBucketLua, kind: distinctLua},
		limiter.FixedWindow:   counter(takeFixedWindowLua, manyFixedWindowLua),
		limiter.SlidingWindow: counter(takeSlidingWindowLua, manySlidingWindowLua),
		limiter.GCRA:          counter(takeGCRALua, manyGCRALua),
		limiter.SlidingLog:    {slidingLogLua, takeSlidingLogLua, manySlidingLogLua, keysBoxLua, plainLogsLua, slidingLogKindLua},
		limiter.Cooldown:      {slidingLogLua + "\n" + pauseLua, takeCooldownLua, manyCooldownLua, keysBoxLua, plainLogsLua, cooldownLua},
	} {
		s.lone[a], s.straight[a] = p.lone(clock), p.straight(clock)
		s.several[a], s.again[a] = p.several(clock), p.again(clock)
	}
	return s
}

// take is the leanest script that takes what b asks for.
func (s *scripts) take(b *payload) *script {
	if bits.OnesCount16(b.kinds) != 1 || len(b.follows) > 0 {
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
