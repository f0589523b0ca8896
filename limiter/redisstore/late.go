package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// detach has the writer use another connection in place of q.conn, on which Redis does not reply in time. It returns
// the one whose late replies were read until now, or nil.
func (q *queue) detach() (earlier *wire.Conn) {
	earlier = q.lateConn
	q.conn.MarkEnded()
	q.late, q.lateConn = q.inFlight, q.conn
	q.inFlight, q.conn = nil, nil
	q.wakeWriter()
	return earlier
}

// abortLate ends the reader of late replies.
func (q *queue) abortLate() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lateConn != nil {
		q.lateConn.Abort(net.ErrClosed)
	}
}

// A lateGrant is what Redis granted to a call whose caller had given up.
type lateGrant struct {
	claims []limiter.Claim
	permit limiter.Permit
}

// addLate records that claims of c were granted at the time at, if nobody waits for c any more.
func (b *batch) addLate(c *call, claims []limiter.Claim, at time.Time) {
	if c.state == callAbandoned {
		b.late = append(b.late, lateGrant{claims, limiter.Permit{ID: c.id, At: at}})
	}
}

// refundLate refunds grants in the background. Redis has just replied, but the circuit breaker may still be open: it tries
// again until lateTimeout is over.
func (p *pipeline) refundLate(grants []lateGrant) {
	if len(grants) == 0 {
		return
	}
	open := grants // captured, so that a call without late grants allocates nothing
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(p.store.outage.ctx, lateTimeout)
		defer cancel()
		for len(open) > 0 && ctx.Err() == nil {
			waits := make([]func() error, len(open))
			for i, g := range open {
				waits[i] = p.store.StartRefund(g.claims, g.permit)
			}
			var failed []lateGrant
			for i, wait := range waits {
				if wait() != nil {
					failed = append(failed, open[i])
				}
			}
			if open = failed; len(open) > 0 {
				_ = pause(ctx, probeInterval)
			}
		}
	})
}

// mustResend reports whether err says that the script did not run, and that the client
// can recover: by sending the script's source, by calling another node, by connecting
// to a master, or by waiting until all keys have moved.
func (b *slotBatch) mustResend(s *Store, err error) bool {
	return hasCode(err, "NOSCRIPT") || s.isCluster && !b.payload.crossSlot && hasCode(err, "MOVED", "ASK", "TRYAGAIN", "READONLY")
}

// resend sends the command of g again through the client, for calls whose callers still
// wait. It sends the source, because the other node may not have the script either.
func (p *pipeline) resend(g *slotBatch, calls []*call) {
	again := &batch{store: p.store, sentAt: time.Now(), version: p.store.refusals.version.Load()}
	ctx := context.Background()
	if g.redisson != nil {
		ctx = withRedissonCall(ctx)
	}
	sc, keys, args := g.command(p.store)
	calls, args = slices.Clone(calls), cloneArgs(args)
	to, crossSlot, refunds := runner(p.store.client), g.payload.crossSlot, g.refunds
	if crossSlot {
		to = p.dialer.Node
	}
	p.background.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, p.store.timeout)
		defer cancel()
		val, err := sc.send(ctx, to, "eval", sc.text, keys, args)
		if crossSlot {
			err = p.crossSlotError(err)
		}
		if refunds && errors.Is(err, errSeveralCalls) {
			p.resendApart(calls)
			return
		}
		answer := wire.Reply{Err: err}
		if err == nil {
			answer.Ints, answer.Err = numbersOf(val)
		}
		p.queue.claim(calls)
		again.finishCalls(calls, &answer)
		p.refundLate(again.late)
	})
}

// resendApart sends refunds again, each by itself: one script call could not make all of them.
func (p *pipeline) resendApart(calls []*call) {
	for i, c := range calls {
		one := &batch{store: p.store}
		one.addChange(c)
		p.resend(one.groups[0], calls[i:i+1])
	}
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
