package node

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
)

// upstreams returns the upstreams of this node, with the state of their targets on all nodes.
func (n *Node) upstreams(ctx context.Context) (view.Upstreams, error) {
	seen, said := n.gatherAnswers(ctx, cluster.Question{Upstreams: &struct{}{}})
	return view.Upstreams{Upstreams: mergeUpstreams(seen), Nodes: said}, nil
}

// mergeUpstreams merges the state that nodes report for the upstreams and targets of the first of
// them. Upstreams that only other nodes have belong to another configuration and are omitted.
func mergeUpstreams(seen []cluster.Reply) []view.Upstream {
	all := []view.Upstream{}
	for i, r := range seen {
		for _, u := range r.Seen.Upstreams {
			at := slices.IndexFunc(all, func(a view.Upstream) bool { return a.Name == u.Name })
			if at < 0 && i > 0 {
				continue
			}
			if at < 0 {
				at = len(all)
				all = append(all, upstreamOf(u))
			}
			all[at].Waiting += u.Waiting
			all[at].Retried += u.Retried
			addTargets(all[at].Targets, r.Node, u.Targets)
		}
	}
	slices.SortFunc(all, func(a, b view.Upstream) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// upstreamOf returns u without counts and states.
func upstreamOf(u view.UpstreamStanding) view.Upstream {
	a := view.Upstream{UpstreamState: u.UpstreamState, Targets: []view.Target{}}
	a.Waiting, a.Retried = 0, 0
	for _, t := range u.Targets {
		a.Targets = append(a.Targets, view.Target{Target: t.Target, Weight: t.Weight, Results: map[string]int64{}, Nodes: []view.TargetNode{}})
	}
	return a
}

// addTargets adds the state that node reports to the targets.
func addTargets(to []view.Target, node string, targets []view.TargetStanding) {
	for _, t := range targets {
		at := slices.IndexFunc(to, func(a view.Target) bool { return a.Target == t.Target })
		if at < 0 {
			continue
		}
		a := &to[at]
		a.InFlight += t.InFlight
		a.Requests += t.Requests
		a.Errors += t.Errors
		for result, n := range t.Results {
			a.Results[result] += n
		}
		if severity(t.State) > severity(a.State) {
			a.State = t.State
		}
		a.Nodes = append(a.Nodes, view.TargetNode{Node: node, TargetState: t.TargetState})
	}
}

// severity orders states. An unknown state, of a later version, is the worst.
func severity(state string) int {
	states := []string{"", view.Healthy, view.SlowStart, view.Probing, view.Ejected, view.Unhealthy}
	if i := slices.Index(states, state); i >= 0 {
		return i
	}
	return len(states)
}

// This file returns the current configuration in the types of the admin API.

func (n *Node) servedConfig(context.Context) (view.Config, error) {
	number, c := n.proxy.Serving()
	text, err := c.Effective()
	return view.Config{Node: n.store.id, Generation: number, Hash: c.Hash, Effective: string(text)}, err
}

func (n *Node) servedRoutes(context.Context) (view.Routes, error) {
	number, c := n.proxy.Serving()
	all := view.Routes{Generation: number, Routes: []view.Route{}}
	for _, r := range c.Routes {
		all.Routes = append(all.Routes, r.View())
	}
	return all, nil
}

func (n *Node) servedLimits(context.Context) (view.Limits, error) {
	number, c := n.proxy.Serving()
	all := view.Limits{Generation: number, Limits: []view.Limit{}}
	for _, l := range c.Limits() {
		all.Limits = append(all.Limits, l.View())
	}
	return all, nil
}
