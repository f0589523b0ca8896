package redisstore

import (
	"errors"
	"fmt"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

// A changeCommand is a script call that changes windows. It is sent over the pipeline of
// its windows, ahead of the requests of the same batch, so that Redis runs it before every
// Take that begins later in this process.
type changeCommand struct {
	script *script
	keys   []string
	args   []any
}

// StartRefund is Refund without waiting for the reply of Redis: when it returns, the calls
// are queued, and a Take of this process that begins later is decided after them. wait
// returns the result of Refund.
func (s *Store) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	if p.IsZero() {
		claims = nil
	}
	noted, claims := splitConversions(claims)
	refunded, byNote := s.startRefund(claims, p), s.startRefundByNote(noted, p)
	return func() error {
		_, err := refunded()
		return errors.Join(err, byNote())
	}
}

// startRefund is StartRefund that also counts the permits.
func (s *Store) startRefund(claims []limiter.Claim, p limiter.Permit) (wait func() (int64, error)) {
	return s.startChange("refund", claims, func(part []limiter.Claim) changeCommand {
		if c := part[0]; c.RedissonName != "" {
			return s.changeOfRedisson(&s.redisson(c.RedissonFormat).refund, c, refundArgs(part, p)...)
		}
		return s.changeOf(&s.scripts.refund, part, refundArgs(part, p)...)
	})
}

// StartReset is to Reset as StartRefund is to Refund.
func (s *Store) StartReset(claims []limiter.Claim) (wait func() error) {
	s.reports.removeWindows(claims)
	reset := s.startChange("reset", claims, func(part []limiter.Claim) changeCommand {
		if c := part[0]; c.RedissonName != "" {
			return s.changeOfRedisson(&s.redisson(c.RedissonFormat).reset, c)
		}
		return s.changeOf(&s.scripts.reset, part)
	})
	return func() error {
		_, err := reset()
		return err
	}
}

func (s *Store) changeOf(sc *script, claims []limiter.Claim, rest ...any) changeCommand {
	b := newPayload(s.names, claims, rest...)
	return changeCommand{sc, b.keyNames(), b.args()}
}

func (s *Store) changeOfRedisson(sc *script, c limiter.Claim, rest ...any) changeCommand {
	return changeCommand{sc, s.names.keys(c), redissonArgs(c, rest...)}
}

// startChange queues a command for each part of claims. Cached refusals of their windows
// are dropped, now and when Redis has replied: a request that is refused meanwhile must not
// be remembered. wait returns the sum of the replies.
func (s *Store) startChange(verb string, claims []limiter.Claim, command func([]limiter.Claim) changeCommand) (wait func() (int64, error)) {
	if err := limiter.CheckClaims(claims); err != nil || len(claims) == 0 {
		return func() (int64, error) { return 0, err }
	}
	s.refusals.invalidateClaims(claims)
	parts := s.parts(claims) // the caller may reuse claims
	var calls []*call
	var failed error
	for _, part := range parts {
		c, err := s.queueChange(part.claims, command(part.claims))
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		calls = append(calls, c)
	}
	return func() (n int64, err error) {
		for _, c := range calls {
			<-c.done
			n += c.reply
			failed = errors.Join(failed, c.err)
		}
		for _, part := range parts {
			s.refusals.invalidateClaims(part.claims)
		}
		if failed != nil {
			return n, fmt.Errorf("%s: %w: %w", verb, limiter.ErrUnavailable, failed)
		}
		return n, nil
	}
}

// queueChange queues a command about claims of one part.
func (s *Store) queueChange(claims []limiter.Claim, command changeCommand) (*call, error) {
	ctx, cancel := s.withTimeout()
	defer cancel()
	p, err := s.pipelines.forClaim(ctx, &claims[0])
	if err != nil {
		return nil, err
	}
	c := s.newCall(claims, [16]byte{})
	c.change = &command
	return c, p.queue.enqueue(c)
}

// finishChange finishes the call of a command with its reply, a number that is not
// negative.
func (b *batch) finishChange(c *call, p *wire.Reply) {
	err := p.Err
	if err == nil && (len(p.Ints) != 1 || p.Ints[0] < 0) {
		err = wire.ErrReply
	}
	if err != nil {
		b.store.reloadCluster()
		err = redissonError(err)
	}
	if c.state == callAnswered {
		if err == nil {
			c.reply = p.Ints[0]
		}
		c.finish(err)
	}
}
