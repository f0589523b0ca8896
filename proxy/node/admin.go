package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/admin/dashboard"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/simulate"
	"github.com/weir-proxy/weir/proxy/view"
)

// adminOptions returns the functions of this node for the admin API.
func (n *Node) adminOptions() admin.Options {
	c := n.source.machine.Admin
	o := admin.Options{
		Token: c.Token, Tokens: c.Tokens, WrongTokens: n.wrongTokens, Hosts: c.Hosts, Gatherer: n.registry, Reload: n.operatorReload, Ready: n.ready, Plan: n.plan,
		Config: n.servedConfig, Routes: n.servedRoutes, Limits: n.servedLimits,
		Standing: n.proxy.Standing, Change: n.operatorChange, Outcome: n.operatorOutcome, Explain: n.proxy.Explain, Simulate: n.simulate, Decisions: n.decisions, Top: n.top, Conversion: n.conversion, Upstreams: n.upstreams, Audit: n.auditTrail, Once: cluster.NewOnce(n.store.client, n.store.prefix), Events: n.events,
		Context: forOperator, Bans: n.bans, Plans: n.plans, Maintenance: n.maintenance, SetMaintenance: n.setMaintenance,
	}
	if n.access.file != nil {
		o.AccessLog = n.access.file.path
	}
	o.Leader = func(ctx context.Context) (view.Leadership, error) {
		now, err := n.leader.leader.Current(ctx)
		now.Self = n.store.id
		return now, err
	}
	o.Statistics = func(ctx context.Context, count int) (view.Statistics, error) {
		minutes, err := n.leader.statistics.Minutes(ctx, count)
		if err != nil {
			return view.Statistics{}, err
		}
		last, err := n.leader.statistics.Last(ctx)
		return view.Statistics{Minutes: minutes, Last: last}, err
	}
	o.Nodes = func(ctx context.Context) (admin.Nodes, error) {
		nodes, lost, err := n.nodes(ctx)
		all := nodesOf(n.store.id, nodes, lost)
		n.compareGroups(ctx, all.Configurations)
		if n.store.cluster != nil {
			all.Awaited = n.store.cluster.Awaited()
		}
		return all, err
	}
	o.Self = n.self
	if n.store.cluster != nil && n.source.pushable() {
		o.Cluster = pushAPI{n}
	}
	o.Dashboard = dashboard.New(o)
	return o
}

// nodes returns the live nodes and the lost ones; without a cluster, only this one.
func (n *Node) nodes(ctx context.Context) (live, lost []view.Member, err error) {
	if n.store.cluster == nil {
		return []view.Member{n.self()}, nil, nil
	}
	if live, err = n.store.cluster.Nodes(ctx); err == nil {
		lost, err = n.store.cluster.Lost(ctx)
	}
	return live, lost, err
}

// self returns this node, from memory.
func (n *Node) self() view.Member {
	source := "file"
	if n.source.pushable() {
		source = "redis"
	}
	number, now := n.proxy.Serving()
	return view.Member{
		ID: n.store.id, Address: n.Address("admin"), Version: n.build.Version, Source: source,
		Hash: now.Hash, Generation: number, Started: n.store.started, Seen: time.Now().UTC(),
	}
}

// wrongTokensInterval is how often wrong tokens are logged.
const wrongTokensInterval = time.Minute

// logWrongTokens logs once a minute, and when ctx is done, what wrong tokens were sent since then.
func logWrongTokens(ctx context.Context, w *admin.WrongTokens, log zerolog.Logger) {
	summarize := func() {
		if s := w.Summary(); s.Wrong+s.Slowed > 0 {
			log.Warn().Int("wrong", s.Wrong).Int("slowed", s.Slowed).Int("addresses", s.Addresses).Str("last", s.Last).Msg("wrong admin tokens")
		}
	}
	every(ctx, wrongTokensInterval, summarize)
	summarize()
}

// nodesOf groups the live nodes by their configurations. Those outside the first group drift.
func nodesOf(self string, live, lost []view.Member) admin.Nodes {
	all := admin.Nodes{Self: self, Nodes: append([]view.Member{}, live...), Lost: append([]view.Member{}, lost...), Configurations: groupsOf(live)}
	for i, m := range live {
		all.Nodes[i].Drift = m.Hash != all.Configurations[0].Hash
	}
	return all
}

// groupsOf returns the configurations that nodes serve: the one of most nodes first, and of as many the pushed one,
// and then the newest.
func groupsOf(nodes []view.Member) []admin.NodeGroup {
	groups := []admin.NodeGroup{}
	for _, m := range nodes {
		i := slices.IndexFunc(groups, func(g admin.NodeGroup) bool { return g.Hash == m.Hash })
		if i < 0 {
			i, groups = len(groups), append(groups, admin.NodeGroup{Hash: m.Hash, Source: m.Source})
		}
		g := &groups[i]
		g.Nodes, g.Generation = append(g.Nodes, m.ID), max(g.Generation, m.Generation)
		if m.Source == string(config.SourceRedis) {
			g.Source = m.Source
		}
	}
	slices.SortStableFunc(groups, func(a, b admin.NodeGroup) int {
		return cmp.Or(len(b.Nodes)-len(a.Nodes), strings.Compare(b.Source, a.Source), cmp.Compare(b.Generation, a.Generation)) // redis comes after file
	})
	return groups
}

func simulation(node string, generation int64, r *simulate.Report) admin.Simulation {
	a := admin.Simulation{
		Node: node, LogCounts: r.LogCounts, TookMS: r.Took.Milliseconds(), Generation: generation, Result: r.Result, Against: r.Against, Notes: r.Notes,
	}
	if r.Against != nil {
		a.Differences = r.Differences()
	}
	return a
}
