package cli

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

// tell gives the operators' side what there is to tell of the cluster.
func (s *service) wireAdmin(o *admin.Options) {
	o.Leader = func(ctx context.Context) (any, error) {
		now, err := s.lead.leader.Current(ctx)
		return leadership{s.shared.id, now}, err
	}
	o.Statistics = func(ctx context.Context, n int) (any, error) {
		minutes, err := s.lead.statistics.Minutes(ctx, n)
		return map[string]any{"minutes": minutes}, err
	}
	if s.shared.node != nil && s.source.pushable() {
		o.Cluster = pushAPI{s}
	}
	o.Nodes = func(ctx context.Context) (any, error) {
		members, err := s.members(ctx)
		return map[string]any{"self": s.shared.id, "nodes": memberships(members)}, err
	}
}

// members are the nodes that live; a weir that shares nothing is the only one.
func (s *service) members(ctx context.Context) ([]cluster.Member, error) {
	if s.shared.node != nil {
		return s.shared.node.Nodes(ctx)
	}
	number, now := s.proxy.Serving()
	return []cluster.Member{{
		ID: s.shared.id, Address: s.address("admin"), Version: readBuild().version, Source: "file",
		Hash: now.Hash, Generation: number, Started: s.shared.started, Seen: time.Now().UTC(),
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
