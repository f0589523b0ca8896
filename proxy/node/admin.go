package node

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/admin/dashboard"
	"github.com/weir-proxy/weir/proxy/cluster"
)

// adminOptions returns the functions of this node for the admin API.
func (n *Node) adminOptions() admin.Options {
	c := n.source.machine.Admin
	o := admin.Options{
		Token: c.Token, WrongTokens: n.wrongTokens, Hosts: c.Hosts, Gatherer: n.registry, Reload: n.operatorReload, Ready: n.ready, Plan: n.plan,
		Config: n.servedConfig, Routes: n.servedRoutes, Limits: n.servedLimits,
		Standing: n.proxy.Standing, Change: n.operatorChange, Outcome: n.operatorOutcome, Explain: n.proxy.Explain, Simulate: n.simulate, Decisions: n.decisions, Top: n.top, Conversion: n.conversion, Upstreams: n.upstreams, Audit: n.auditTrail, Once: cluster.NewOnce(n.store.client, n.store.prefix), Events: n.events,
		Context: forOperator, Bans: n.bans, Plans: n.plans, Maintenance: n.maintenance, SetMaintenance: n.setMaintenance,
	}
	if n.access.file != nil {
		o.AccessLog = n.access.file.path
	}
	for _, t := range c.Tokens {
		role := admin.Read
		if t.Write {
			role = admin.Write
		}
		o.Tokens = append(o.Tokens, admin.Token{Name: t.Name, Text: t.Text, Role: role})
	}
	o.Leader = func(ctx context.Context) (admin.Leadership, error) {
		now, err := n.leader.leader.Current(ctx)
		return leadership(n.store.id, now), err
	}
	o.Statistics = func(ctx context.Context, count int) (admin.Statistics, error) {
		minutes, err := n.leader.statistics.Minutes(ctx, count)
		if err != nil {
			return admin.Statistics{}, err
		}
		last, err := n.leader.statistics.Last(ctx)
		return statistics(minutes, last), err
	}
	o.Nodes = func(ctx context.Context) (admin.Nodes, error) {
		nodes, lost, err := n.nodes(ctx)
		all := nodesOf(n.store.id, nodes, lost)
		n.compareGroups(ctx, all.Configurations)
		return all, err
	}
	o.Self = func() admin.Member { return member(n.self()) }
	if n.store.cluster != nil && n.source.pushable() {
		o.Cluster = auditedCluster{pushAPI{n}, n}
	}
	o.Dashboard = dashboard.New(o)
	return o
}

// nodes returns the live nodes and the lost ones; without a cluster, only this one.
func (n *Node) nodes(ctx context.Context) (live, lost []cluster.Member, err error) {
	if n.store.cluster == nil {
		return []cluster.Member{n.self()}, nil, nil
	}
	if live, err = n.store.cluster.Nodes(ctx); err == nil {
		lost, err = n.store.cluster.Lost(ctx)
	}
	return live, lost, err
}

// self returns this node, from memory.
func (n *Node) self() cluster.Member {
	source := "file"
	if n.source.pushable() {
		source = "redis"
	}
	number, now := n.proxy.Serving()
	return cluster.Member{
		ID: n.store.id, Address: n.Address("admin"), Version: n.build.Version, Source: source,
		Hash: now.Hash, Generation: number, Started: n.store.started, Seen: time.Now().UTC(),
	}
}

// wrongTokensInterval is how often wrong tokens are logged.
const wrongTokensInterval = time.Minute

// logWrongTokens logs once a minute, and when ctx is done, what wrong tokens were sent since then.
func logWrongTokens(ctx context.Context, w *admin.WrongTokens, log zerolog.Logger) {
	tick := time.NewTicker(wrongTokensInterval)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			ended = true
		}
		if s := w.Summary(); s.Wrong+s.Slowed > 0 {
			log.Warn().Int("wrong", s.Wrong).Int("slowed", s.Slowed).Int("addresses", s.Addresses).Str("last", s.Last).Msg("wrong admin tokens")
		}
	}
}
