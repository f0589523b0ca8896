package node

import (
	"context"
	"slices"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
)

// operate adds what operators are told of this node, and what they do to keys.
func (n *Node) operate(o *admin.Options) {
	for _, t := range n.source.own.Admin.Tokens {
		role := admin.Read
		if t.Write {
			role = admin.Write
		}
		o.Tokens = append(o.Tokens, admin.Token{Name: t.Name, Text: t.Text, Role: role})
	}
	o.Config, o.Routes, o.Limits = n.config, n.routes, n.limits
	o.Standing, o.Explain = n.proxy.Standing, n.proxy.Explain
	o.Decisions, o.Top = n.decisions, n.top
	audit := cluster.NewAudit(n.store.client, n.store.prefix, n.store.id, func(e cluster.AuditEntry) {
		n.log.Info().Str("who", e.Who).Str("action", e.Action).Str("key_hash", e.Hash).Strs("limits", e.Limits).Str("reason", e.Reason).Str("error", e.Error).Msg("operator")
	})
	o.Change = func(ctx context.Context, c proxy.KeyChange) (proxy.KeyResult, error) {
		r, err := n.proxy.Change(ctx, c)
		if err := audit.Record(ctx, cluster.AuditOf(admin.OperatorOf(ctx).Name, c, r, err)); err != nil {
			r.Notes = append(r.Notes, "the log alone tells of it so far: "+err.Error())
		}
		return r, err
	}
	o.Audit = func(ctx context.Context, q admin.AuditQuery) (admin.Audit, error) {
		p, err := audit.Page(ctx, q.Before, q.N)
		a := admin.Audit{Entries: []admin.AuditEntry{}, Next: p.Next}
		for _, e := range p.Entries {
			a.Entries = append(a.Entries, admin.AuditEntry(e))
		}
		return a, err
	}
}

func (n *Node) config(context.Context) (admin.Config, error) {
	number, c := n.proxy.Serving()
	text, err := c.Effective()
	return admin.Config{Node: n.store.id, Generation: number, Hash: c.Hash, Effective: string(text)}, err
}

func (n *Node) routes(context.Context) (admin.Routes, error) {
	number, c := n.proxy.Serving()
	all := admin.Routes{Generation: number, Routes: []admin.Route{}}
	for _, r := range c.Routes {
		all.Routes = append(all.Routes, admin.Route{
			Name: r.Name, Position: r.Position.String(), Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path,
			Headers: r.Match.Headers, Query: r.Match.Query, Limits: []string{},
		})
	}
	return all, nil
}

func (n *Node) limits(context.Context) (admin.Limits, error) {
	number, c := n.proxy.Serving()
	all := admin.Limits{Generation: number, Limits: []admin.Limit{}}
	for _, r := range c.Routes {
		for _, l := range r.Limits {
			one := admin.Limit{Route: r.Name, Name: l.Name, Position: l.Position.String(), Key: l.Key.Name, Algorithm: l.Algorithm.String(), Mode: string(l.Mode), Scope: l.Scope.String()}
			for _, rate := range l.Rates {
				one.Rates = append(one.Rates, rate.String())
			}
			for _, part := range l.Key.Join {
				one.Parts = append(one.Parts, part.Name)
			}
			all.Limits = append(all.Limits, one)
		}
	}
	return all, nil
}

func (n *Node) decisions(_ context.Context, q admin.DecisionQuery) (admin.Decisions, error) {
	all := admin.Decisions{Decisions: []admin.Decision{}, Nodes: []admin.NodeAnswer{{Node: n.store.id}}}
	for _, d := range n.proxy.Decisions(proxy.DecisionQuery(q)) {
		one := admin.Decision{
			Node: n.store.id, RequestID: d.RequestID, At: d.At, Route: d.Route, Method: d.Method, Path: d.Path, Status: d.Status,
			Outcome: d.Outcome, TookMS: d.TookMS, More: d.More, List: d.List, NewKeys: d.NewKeys, Fallback: d.Fallback,
			Upstream: d.Upstream, Error: d.Error, Repeated: d.Repeated, Waited: d.Waited, Exempt: d.Exempt, BanBegan: d.BanBegan,
		}
		for _, l := range d.Limits {
			one.Limits = append(one.Limits, admin.DecisionLimit(l))
		}
		all.Decisions = append(all.Decisions, one)
	}
	return all, nil
}

func (n *Node) top(_ context.Context, q admin.TopQuery) (admin.Top, error) {
	t := n.proxy.Top(proxy.TopQuery{Route: q.Route, Limit: q.Limit, Minutes: q.Minutes, N: q.N})
	all := admin.Top{Minutes: t.Minutes, Limits: []admin.TopLimit{}, Nodes: []admin.NodeAnswer{{Node: n.store.id}}}
	for _, l := range t.Limits {
		all.Limits = append(all.Limits, admin.TopLimit{Route: l.Route, Limit: l.Limit, Key: l.Key, Mode: l.Mode, Requests: topList(l.Requests), Refused: topList(l.Refused)})
	}
	return all, nil
}

func topList(l proxy.TopList) admin.TopList {
	out := admin.TopList{Total: l.Total, Floor: l.Floor, Keys: slices.Grow([]admin.TopKey{}, len(l.Keys))}
	for _, k := range l.Keys {
		out.Keys = append(out.Keys, admin.TopKey(k))
	}
	return out
}
