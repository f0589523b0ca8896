package node

import (
	"context"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
)

// A leadership is who leads, and who says so.
type leadership struct {
	Self string `json:"self"`
	cluster.Leadership
}

// A membership is a node, and whether it serves something else than was taken up
// last.
type membership struct {
	cluster.Member
	Drift bool `json:"drift"`
}

// adminOptions are what the operators' side is told and may ask for.
func (n *Node) adminOptions() admin.Options {
	c := n.source.own.Admin
	o := admin.Options{Token: c.Token, Hosts: c.Hosts, Gatherer: n.registry, Reload: n.reload, Ready: n.ready, Plan: n.plan}
	o.Leader = func(ctx context.Context) (any, error) {
		now, err := n.leader.leader.Current(ctx)
		return leadership{n.store.id, now}, err
	}
	o.Statistics = func(ctx context.Context, count int) (any, error) {
		minutes, err := n.leader.statistics.Minutes(ctx, count)
		return map[string]any{"minutes": minutes}, err
	}
	if n.store.cluster != nil && n.source.pushable() {
		o.Cluster = pushAPI{n}
	}
	o.Nodes = func(ctx context.Context) (any, error) {
		members, err := n.members(ctx)
		return map[string]any{"self": n.store.id, "nodes": memberships(members)}, err
	}
	return o
}

// members are the nodes that live; a weir that shares nothing is the only one.
func (n *Node) members(ctx context.Context) ([]cluster.Member, error) {
	if n.store.cluster != nil {
		return n.store.cluster.Nodes(ctx)
	}
	number, now := n.proxy.Serving()
	return []cluster.Member{{
		ID: n.store.id, Address: n.Address("admin"), Version: n.build.Version, Source: "file",
		Hash: now.Hash, Generation: number, Started: n.store.started, Seen: time.Now().UTC(),
	}}, nil
}

// memberships compares the nodes with the one that has the highest generation.
func memberships(members []cluster.Member) []membership {
	var last cluster.Member
	for _, m := range members {
		if m.Generation >= last.Generation {
			last = m
		}
	}
	all := []membership{}
	for _, m := range members {
		all = append(all, membership{m, m.Hash != last.Hash})
	}
	return all
}
