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

// This file converts the types of package cluster to those of the admin API. They are separate, so
// that the format in Redis and that of responses can change independently.

func leadership(self string, l cluster.Leadership) admin.Leadership {
	a := admin.Leadership{Self: self, Node: l.Node, Since: l.Since, Token: l.Token, Tasks: []admin.TaskRun{}}
	for _, r := range l.Tasks {
		a.Tasks = append(a.Tasks, admin.TaskRun(r))
	}
	return a
}

// nodesOf groups the live nodes by their configurations. Those outside the first group drift.
func nodesOf(self string, live, lost []cluster.Member) admin.Nodes {
	all := admin.Nodes{Self: self, Nodes: []admin.Member{}, Lost: []admin.Member{}, Configurations: groupsOf(live)}
	for _, m := range live {
		one := member(m)
		one.Drift = m.Hash != all.Configurations[0].Hash
		all.Nodes = append(all.Nodes, one)
	}
	for _, m := range lost {
		all.Lost = append(all.Lost, member(m))
	}
	return all
}

// groupsOf returns the configurations that nodes serve: the one of most nodes first, and of as many the pushed one,
// and then the newest.
func groupsOf(nodes []cluster.Member) []admin.NodeGroup {
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

func member(m cluster.Member) admin.Member {
	return admin.Member{
		ID: m.ID, Address: m.Address, Version: m.Version, Source: m.Source, Hash: m.Hash,
		Generation: m.Generation, Started: m.Started, Seen: m.Seen, Problem: m.Problem,
	}
}

func statistics(minutes []cluster.Minute, last cluster.Minute) admin.Statistics {
	a := admin.Statistics{Minutes: []admin.Minute{}, Last: minute(last)}
	for _, m := range minutes {
		a.Minutes = append(a.Minutes, minute(m))
	}
	return a
}

func minute(m cluster.Minute) admin.Minute {
	a := admin.Minute{At: m.At, Routes: []admin.RouteMinute{}}
	for _, r := range m.Routes {
		route := admin.RouteMinute{
			Route: r.Route, Requests: r.Requests, Allowed: r.Allowed, Refused: r.Refused,
			ShadowRefused: r.ShadowRefused, Rejected: r.Rejected, Unavailable: r.Unavailable,
		}
		for _, l := range r.Limits {
			route.Limits = append(route.Limits, admin.LimitMinute(l))
		}
		a.Routes = append(a.Routes, route)
	}
	return a
}

func history(entries []cluster.Entry) admin.History {
	a := admin.History{History: []admin.Entry{}}
	for _, e := range entries {
		a.History = append(a.History, entry(e))
	}
	return a
}

func entry(e cluster.Entry) admin.Entry {
	return admin.Entry{Generation: e.Generation, Hash: e.Hash, Author: e.Author, Node: e.Node, At: e.At, From: e.From}
}

// nodeAnswers returns nil if no node was asked.
func nodeAnswers(answers []cluster.Answer) []admin.NodeAnswer {
	var all []admin.NodeAnswer
	for _, a := range answers {
		all = append(all, admin.NodeAnswer(a))
	}
	return all
}

func simulation(node string, generation int64, r *simulate.Report) admin.Simulation {
	a := admin.Simulation{
		Node: node, Lines: r.Lines, Requests: r.Requests, Others: r.Others, Malformed: r.Malformed, Late: r.Late, Untimed: r.Untimed, Hostless: r.Hostless, TooMany: r.TooMany,
		TookMS: r.Took.Milliseconds(), Generation: generation, Result: r.Result, Against: r.Against, Notes: r.Notes,
	}
	if r.Against == nil {
		return a
	}
	for _, d := range r.Differences() {
		a.Differences = append(a.Differences, admin.SimulatedDifference{Route: d.Route, Limit: d.Limit, A: admin.SimulatedSide(d.A), B: admin.SimulatedSide(d.B)})
	}
	return a
}
