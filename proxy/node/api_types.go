package node

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/simulate"
)

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
