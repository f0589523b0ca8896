package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// mustResend reports whether err says that the script did not run, and that the client
// can recover: by sending the script's source, by calling another node, or by connecting
// to a master.
func (b *batch) mustResend(err error) bool {
	return hasCode(err, "NOSCRIPT") || b.store.isCluster && hasCode(err, "MOVED", "ASK", "READONLY")
}

// resend sends the command of g again through the client, for calls whose callers still
// wait. It sends the source, because the other node may not have the script either.
func (p *pipeline) resend(g *slotBatch, calls []*call) {
	again := newBatch(p.store)
	again.sentAt, again.version = time.Now(), p.store.refusals.currentVersion()
	ctx := context.Background()
	if g.redisson != nil {
		ctx = withRedissonCall(ctx)
	}
	sc, keys, args := g.command(p.store)
	calls, args = slices.Clone(calls), cloneArgs(args)
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, p.store.timeout)
		defer cancel()
		val, err := sc.send(ctx, p.store.client, "eval", sc.text, keys, args)
		answer := wire.Reply{Err: err}
		if err == nil {
			answer.Ints, answer.Err = numbersOf(val)
		}
		p.queue.claim(calls)
		again.finishCalls(calls, &answer)
		p.refundLate(again.late)
	})
}

// cloneArgs returns args with copies of the byte slices.
func cloneArgs(args []any) []any {
	for i, a := range args {
		if text, ok := a.([]byte); ok {
			args[i] = slices.Clone(text)
		}
	}
	return args
}
