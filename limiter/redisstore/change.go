package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	refund limiter.Permit // instead of these: it is refunded, in one script call with others

	isRedisson bool // it is about a limiter shared with Redisson, whose errors are counted apart
}

// StartRefund is Refund without waiting for the reply of Redis: when it returns, the calls
// are queued, and a Take of this process that begins later is decided after them. wait
// returns the result of Refund.
func (s *Store) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	switch {
	case p.IsZero():
		claims = nil
	case s.reports.windows.Load() > 0:
		s.reports.withdraw(claims, p)
	}
	return s.startRefundOf(lateGrant{claims: slices.Clone(claims), permit: p})
}

// startRefundOf is StartRefund. A refund that fails is tried again when Redis is reachable: it may have been made, and is
// made once.
func (s *Store) startRefundOf(g lateGrant) (wait func() error) {
	noted, others := splitConversions(g.claims)
	refunded, byNote := s.startRefund(others, g.permit), s.startRefundByNote(noted, g.permit)
	return func() error {
		_, err := refunded()
		err = errors.Join(err, byNote())
		if g.tries++; errors.Is(err, limiter.ErrUnavailable) && !errors.Is(err, limiter.ErrUnreadable) {
			s.reports.addRefund(g)
			s.watchOutage(false)
		}
		return err
	}
}

// startRefund is StartRefund that also counts the permits.
func (s *Store) startRefund(claims []limiter.Claim, p limiter.Permit) (wait func() (int64, error)) {
	return s.startChange("refund", claims, func(part []limiter.Claim) changeCommand {
		if part[0].RedissonName == "" {
			return changeCommand{refund: limiter.Permit{ID: p.ID, At: takenAt(p, &part[0])}}
		}
		return s.changeOf("refund", part, append(refundArgs(part, p), max(part[0].Taken, part[0].Cost))...)
	})
}

// StartReset is to Reset as StartRefund is to Refund.
func (s *Store) StartReset(claims []limiter.Claim) (wait func() error) {
	for _, c := range claims {
		s.reports.removeWindow(windowIDOf(&c))
	}
	reset := s.startChange("reset", claims, func(part []limiter.Claim) changeCommand { return s.changeOf("reset", part) })
	return func() error {
		_, err := reset()
		return err
	}
}

// changeOf returns a command of lua/command, or of lua/redisson, about claims of one part.
func (s *Store) changeOf(name string, claims []limiter.Claim, rest ...any) changeCommand {
	if c := claims[0]; c.RedissonName != "" {
		return s.redissonCommand(c.RedissonFormat, name, redissonKeysOf(c.RedissonName, s.names.client), redissonArgs(c, rest...))
	}
	return s.command(name, newPayload(s.names, claims, rest...))
}

// command returns a command about what p has.
func (s *Store) command(name string, p *payload) changeCommand {
	return changeCommand{script: s.scripts.get(scriptName{name: name, algorithms: p.algorithms}), keys: p.keyNames(), args: p.args()}
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
		if c, err := s.queueChange(part.claims, command(part.claims)); err != nil {
			failed = errors.Join(failed, err)
		} else {
			calls = append(calls, c)
		}
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
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	p, err := s.pipelines.forClaim(ctx, &claims[0])
	if err != nil {
		return nil, err
	}
	c := s.newCall(claims, [16]byte{})
	c.change, c.crossSlot = &command, p.crossSlot.Load()
	return c, p.queue.enqueue(c)
}

// finishChanges finishes the calls of changes with the reply, a number for each that is not negative.
func (b *batch) finishChanges(calls []*call, p *wire.Reply) {
	err := b.replyError(p.Err, len(p.Ints), len(calls))
	for i, c := range calls {
		own := err
		if err == nil && p.Ints[i] < 0 {
			own = errType
		}
		if c.state == callAnswered {
			if own == nil {
				c.reply = p.Ints[i]
			}
			c.finish(own)
		}
	}
}

// changePrefix is the prefix of messages about changes. A process of an older version
// does not know it and removes all cached refusals, which costs Redis some calls and does
// not affect decisions.
const changePrefix = "change:"

// A changeMessage is the JSON form of a change, by which processes that share a Redis tell each other of the actions of
// operators.
type changeMessage struct {
	From string `json:"from"`
	Key  string `json:"key"`
	limiter.Change
}

// Announce publishes a change that was made in Redis to all other processes that are
// subscribed now. It makes no change itself. Errors wrap limiter.ErrUnavailable.
func (s *Store) Announce(ctx context.Context, c limiter.Change) error {
	text, err := json.Marshal(changeMessage{s.processID, c.Key.String(), c})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.client.Publish(ctx, s.channel, changePrefix+string(text)).Err(); err != nil {
		return fmt.Errorf("announce change: %w: %w", limiter.ErrUnavailable, err)
	}
	return nil
}

// OnChange sets the function that is called with each change that another process
// announces, one after another. f must not block, because the same goroutine receives the
// refunds of other processes. A later call replaces f. A Store without refusals receives
// no changes.
func (s *Store) OnChange(f func(limiter.Change)) { s.onChange.Store(&f) }

// handleChange handles a message about a change, and returns false for other messages. After a
// reset, pending reports about the key are removed like its other state.
func (s *Store) handleChange(message string) bool {
	text, found := strings.CutPrefix(message, changePrefix)
	var m changeMessage
	if !found || json.Unmarshal([]byte(text), &m) != nil || !readKey(m.Key, &m.Change.Key) {
		return false
	}
	if m.From == s.processID {
		return true
	}
	if m.Action == limiter.ActionReset {
		s.reports.removeNamed(m.Limits, m.Change.Key)
	}
	if f := s.onChange.Load(); f != nil {
		(*f)(m.Change)
	}
	return true
}

// removeNamed removes the pending reports about a key under limits of which only the names are known.
func (r *reports) removeNamed(limits []string, k limiter.Key) {
	for _, name := range limits {
		for a := range limiter.NumAlgorithms {
			r.removeWindow(windowID{name, a, limiter.Overall, slot{key: k}})
			r.removeWindow(windowID{name, a, limiter.PerClient, slot{key: k}})
		}
	}
}

// removeWindow removes the pending report about a window, except what is being sent.
func (r *reports) removeWindow(id windowID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found := r.byWindow[id]; found != nil {
		if found.grants = found.grants[:found.sending]; found.sending == 0 {
			r.deleteLocked(found)
		}
	}
}
