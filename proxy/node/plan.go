package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// peekBatch is the number of counts read by one call.
	peekBatch = 50
	// namedKeys is the maximum number of keys listed for a limit.
	namedKeys = 5
)

// plan returns what would change if b were served, and which keys would be refused now, according
// to the counts in the store.
func (n *Node) plan(ctx context.Context, b bundle.Bundle) (admin.Plan, error) {
	c, err := bundle.Unpack(n.source.machine, b)
	if err != nil {
		return admin.Plan{}, err
	}
	number, now := n.proxy.Serving()
	p := admin.Plan{Generation: number, Changes: config.Compare(now, c), Refused: []admin.LimitRefusal{}, Warnings: textsOf(c.Warnings)}
	next, err := n.proxy.Prepare(ctx, c)
	switch {
	case errors.Is(err, proxy.ErrRestart):
		p.Restart = err.Error()
		return p, nil
	case err != nil:
		return admin.Plan{}, err
	}
	defer next.Discard()
	if n.store.cluster == nil {
		p.Unknown = "the store is memory, whose counts are not listed"
		return p, nil
	}
	p.Warning, _ = n.store.check(ctx) // an error is that of the next call, too
	if err := n.refusals(ctx, next, &p); err != nil {
		p.Unknown = proxy.ErrorText(err)
	}
	return p, nil
}

// textsOf returns problems as check prints them.
func textsOf(problems config.Problems) (all []string) {
	for _, p := range problems {
		all = append(all, p.String())
	}
	return all
}

// refusals evaluates one more request for every count that the store has under the limits that next changes.
func (n *Node) refusals(ctx context.Context, next *proxy.Prepared, p *admin.Plan) error {
	limits := next.ChangedLimits()
	if p.Whole = len(limits) == 0; p.Whole {
		return nil
	}
	byName, names := map[string]*limiter.Limit{}, map[string]bool{}
	for i, l := range limits {
		byName[l.Name], names[l.Name] = &limits[i], true
	}
	counts, whole, err := n.store.cluster.Counted(ctx, names)
	if err != nil {
		return err
	}
	p.Whole = whole
	configured := map[string]*config.Limit{} // by the names under which stores count
	for _, l := range next.Config().Limits() {
		configured[l.ID] = l
	}
	found := map[string]*admin.LimitRefusal{}
	for len(counts) > 0 {
		some := counts[:min(peekBatch, len(counts))]
		counts = counts[len(some):]
		refused, err := n.peek(ctx, some, byName)
		if err != nil {
			return err
		}
		p.Looked += len(some)
		for _, c := range refused {
			r := found[c.Limit]
			if r == nil {
				id, window, _ := strings.Cut(c.Limit, ":")
				l := configured[id]
				r = &admin.LimitRefusal{Limit: l.FullName() + ":" + window, Key: l.Key.Name}
				found[c.Limit] = r
			}
			if r.Keys++; len(r.Named) < namedKeys {
				r.Named = append(r.Named, next.KeyHash(c.Key))
			}
		}
	}
	for _, l := range limits { // in the order of the configuration
		if r := found[l.Name]; r != nil {
			p.Refused = append(p.Refused, *r)
		}
	}
	return nil
}

// peek returns the counts whose next request would be refused.
func (n *Node) peek(ctx context.Context, counts []cluster.CountedKey, limits map[string]*limiter.Limit) ([]cluster.CountedKey, error) {
	var claims []limiter.Claim
	for _, c := range counts {
		claims = append(claims, limiter.Claim{Limit: limits[c.Limit], Key: c.Key, Cost: 1})
	}
	var d limiter.Decision
	if err := n.store.limits.Peek(ctx, claims, &d); err != nil {
		return nil, fmt.Errorf("inspect counts: %w", err)
	}
	var refused []cluster.CountedKey
	for i, o := range d.Outcomes {
		if !o.Allowed {
			refused = append(refused, counts[i])
		}
	}
	return refused, nil
}

// watchTargets logs, until ctx is done, when a target of an upstream goes down and when it is up again:
// one warning for each change.
func (n *Node) watchTargets(ctx context.Context) {
	known := downTargets{}
	every(ctx, connectTimeout, func() { known = known.logChanges(n.log, n.proxy.DownTargets()) })
}

// downTargets are the targets that are down.
type downTargets map[proxy.TargetName]view.TargetState

// logChanges logs the differences between d and the targets that are down now, which it returns.
func (d downTargets) logChanges(log zerolog.Logger, now downTargets) downTargets {
	for name, t := range now {
		if _, known := d[name]; !known {
			log.Warn().Str("upstream", name.Upstream).Str("target", name.Target).Int("failed_connects", t.FailedConnects).Int("failed_checks", t.FailedChecks).Msg("upstream target down")
		}
	}
	for name := range d {
		if _, down := now[name]; !down {
			log.Warn().Str("upstream", name.Upstream).Str("target", name.Target).Msg("upstream target up")
		}
	}
	return now
}
