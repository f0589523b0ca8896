package cluster

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// Behind runs a script of a test behind the fence of the lead, as the scripts of
// tasks are.
func Behind(ctx context.Context, rdb redis.UniversalClient, t Term, script string) error {
	k := newKeyspace(rdb, "test")
	k.scripts["inside"] = redis.NewScript(source("fence") + script)
	_, err := k.runLeading(ctx, t, "inside", nil)
	return err
}

// Begin takes the lead in the name of that owner of the lock.
func Begin(ctx context.Context, rdb redis.UniversalClient, owner string) (int64, error) {
	t, err := redisState{newKeyspace(rdb, "test")}.startTerm(ctx, owner, "a")
	return t.Token, err
}

// Report reports nothing of a minute.
func Report(ctx context.Context, rdb redis.UniversalClient, minute int64) error {
	_, err := NewStatistics(rdb, "test", "a", nil).state.report(ctx, "a", minute, minuteReport{})
	return err
}

// Remove deletes those of keys that are of these limits, as if they were gone.
func (s *Sweep) Remove(ctx context.Context, t Term, limits, keys []string) error {
	s.pass = &pass{term: t, limits: limits}
	_, err := s.remove(ctx, t, keys)
	return err
}

// Rest puts off the next attempt, and says by how much at most.
func (a *Alerter) Rest() time.Duration {
	a.backOff()
	return a.backoff
}

// Fit is the reply that goes to whoever asks q, and how long it is on its way.
func (n *Node) Fit(ctx context.Context, q Question, see func(context.Context, Question) Seen) (Reply, int, error) {
	packed, err := n.truncatedReply(ctx, q, see)
	if err != nil {
		return Reply{}, 0, err
	}
	r, err := unpack(string(packed))
	return Reply{view.NodeAnswer{Node: r.Node, Said: r.Said}, r.Seen}, len(packed), err
}

// NewSkewedStatistics returns statistics of a single process whose store's clock is as far off as skew
// says at each call, as that of a store behind a network is.
func NewSkewedStatistics(figures Figures, skew func() time.Duration) *Statistics {
	s := NewStatistics(nil, "", "a", figures)
	s.state = skewedStatistics{newMemory(), skew}
	return s
}

type skewedStatistics struct {
	*memory
	skew func() time.Duration
}

func (s skewedStatistics) now(ctx context.Context) (time.Time, error) {
	now, err := s.memory.now(ctx)
	return now.Add(s.skew()), err
}

func (s skewedStatistics) report(ctx context.Context, node string, minute int64, r minuteReport) (time.Time, error) {
	now, err := s.memory.report(ctx, node, minute, r)
	return now.Add(s.skew()), err
}

// HearFor makes n have been heard for so long.
func (n *Node) HearFor(d time.Duration) { n.heardSince.Store(int64(time.Since(n.started) - d)) }

// ID returns the id of this node.
func (n *Node) ID() string { return n.options.ID }

// Define returns what is stored of the limits of a configuration, by their IDs.
func Define(c *config.Config) map[string]view.Limit {
	all, args := map[string]view.Limit{}, definitionArgs(c)
	for i := 0; i < len(args); i += 2 {
		all[args[i].(string)], _ = decode[view.Limit](string(args[i+1].([]byte)))
	}
	return all
}

// Limits returns the definitions of the current configuration, by their IDs.
func (n *Node) Limits(ctx context.Context) (map[string]view.Limit, error) {
	texts, err := n.rdb.HGetAll(ctx, n.prefix+"limits").Result()
	all := map[string]view.Limit{}
	for name, text := range texts {
		if all[name], err = decode[view.Limit](text); err != nil {
			break
		}
	}
	return all, err
}
