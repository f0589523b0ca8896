package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// mustResend reports whether an error says that a script did not run, and that the
// client knows what to do: it sends the text, asks another node, or takes a connection
// to a master.
func (b *batch) mustResend(err error) bool {
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return true
	}
	return b.store.isCluster && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "READONLY"))
}

// resend has the client ask what g asked in vain for calls, whose callers go on waiting.
// The text goes along, as who does not know the script would say so once more.
func (p *pipeline) resend(g *slotBatch, calls []*call) {
	again := newBatch(p.store)
	again.sentAt, again.version = time.Now(), p.store.denials.currentVersion()
	ctx := context.Background()
	if g.shared != nil {
		ctx = withSharedCall(ctx)
	}
	sc, keys, args := g.command(p.store)
	calls, args = slices.Clone(calls), cloneArgs(args)
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, p.store.timeout)
		defer cancel()
		val, err := sc.send(ctx, p.store.client, "eval", sc.text, keys, args)
		answer := reply{err: err}
		if err == nil {
			answer.ints, answer.err = numbersOf(val)
		}
		p.queue.claim(calls)
		again.finishCalls(calls, &answer)
	})
}

// cloneArgs are arguments that nobody else writes to.
func cloneArgs(args []any) []any {
	for i, a := range args {
		if text, ok := a.([]byte); ok {
			args[i] = slices.Clone(text)
		}
	}
	return args
}
