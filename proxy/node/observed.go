package node

import (
	"context"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
)

// What this node has seen, as the operators' API tells it.

func (n *Node) decisions(_ context.Context, q admin.DecisionQuery) (admin.Decisions, error) {
	all := admin.Decisions{Decisions: []admin.Decision{}, Nodes: n.answered()}
	for _, d := range n.proxy.Decisions(proxy.DecisionQuery(q)) {
		all.Decisions = append(all.Decisions, n.decision(d))
	}
	return all, nil
}

// answered says that this node has told what it knows.
func (n *Node) answered() []admin.NodeAnswer {
	return []admin.NodeAnswer{{Node: n.store.id, Said: "ok"}}
}

func (n *Node) decision(d proxy.Decision) admin.Decision {
	a := admin.Decision{
		Node: n.store.id, RequestID: d.RequestID, At: d.At, Route: d.Route, Method: d.Method, Path: d.Path, Status: d.Status,
		Outcome: d.Outcome, TookMS: d.TookMS, Limits: []admin.DecisionLimit{}, More: d.More, List: d.List, NewKeys: d.NewKeys,
		Fallback: d.Fallback, Upstream: d.Upstream, Error: d.Error,
		Repeated: d.Repeated, Waited: d.Waited, Exempt: d.Exempt, BanBegan: d.BanBegan,
	}
	for _, l := range d.Limits {
		a.Limits = append(a.Limits, admin.DecisionLimit(l))
	}
	return a
}

func (n *Node) top(_ context.Context, q admin.TopQuery) (admin.Top, error) {
	seen := n.proxy.Top(proxy.TopQuery(q))
	all := admin.Top{Minutes: seen.Minutes, Limits: []admin.TopLimit{}, Nodes: n.answered()}
	for _, l := range seen.Limits {
		all.Limits = append(all.Limits, admin.TopLimit{
			Route: l.Route, Limit: l.Limit, Key: l.Key, Mode: l.Mode, Requests: topList(l.Requests), Refused: topList(l.Refused),
		})
	}
	return all, nil
}

func topList(l proxy.TopList) admin.TopList {
	a := admin.TopList{Total: l.Total, Floor: l.Floor, Keys: []admin.TopKey{}}
	for _, k := range l.Keys {
		a.Keys = append(a.Keys, admin.TopKey(k))
	}
	return a
}
