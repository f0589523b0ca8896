package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/admin/dashboard"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
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

// flushInterval is the interval between attempts to write the audit entries that could not be
// written, and to apply the changes that could not be applied, while Redis was unreachable.
const flushInterval = time.Second

// logOperator logs an operator's action, successful or not.
func (n *Node) logOperator(e view.AuditEntry) {
	line := n.log.Info()
	if e.Error != "" {
		line = n.log.Warn().Str("error", e.Error)
	}
	line = line.Str("who", e.Who).Str("operator_address", e.Address).Str("action", e.Action)
	if e.Masked != "" {
		line = line.Str("key", e.Masked).Str("key_hash", e.Hash).Strs("limits", e.Limits)
	}
	if e.For != "" {
		line = line.Str("for", e.For)
	}
	if e.Permits != 0 {
		line = line.Int64("permits", e.Permits)
	}
	if e.Detail != "" {
		line = line.Str("detail", e.Detail)
	}
	line.Bool("one_node", e.OneNode).Str("reason", e.Reason).Msg("operator action")
}

// record stores an audit entry for the operator of ctx, after the action. If Redis is unreachable,
// the entry is written later.
func (n *Node) record(ctx context.Context, e view.AuditEntry) { n.recordLater(ctx, e, nil) }

// recordLater is like record for a change with the result r, which may wait for Redis; nil for any other action.
func (n *Node) recordLater(ctx context.Context, e view.AuditEntry, r *view.KeyResult) {
	var later *cluster.Later
	if r != nil && r.Later {
		later = &cluster.Later{Where: r.Where(), Settled: r.Settled}
	}
	who := admin.OperatorOf(ctx)
	e.Who, e.Address = who.Name, who.Address
	if err := n.audit.Record(ctx, e, later); err != nil {
		n.log.Warn().Err(err).Msg("audit entry not written yet")
	}
}

// flushAudit applies pending changes of keys and writes pending audit entries periodically, until ctx is done.
func (n *Node) flushAudit(ctx context.Context) {
	every(ctx, flushInterval, func() {
		n.proxy.ApplyDeferred(ctx)
		_ = n.audit.Flush(ctx) // an unreachable Redis is logged elsewhere
	})
}

// closeAudit writes pending audit entries for the last time.
func (n *Node) closeAudit(ctx context.Context) error {
	if err := n.audit.FlushAll(ctx); err != nil {
		n.log.Warn().Err(err).Msg("audit entries lost; the log has them")
	}
	return nil
}

// operatorChange changes a key for an operator. An invalid request changes nothing and is not recorded.
func (n *Node) operatorChange(ctx context.Context, c view.KeyChange) (view.KeyResult, error) {
	network, named, err := n.proxy.NetworkOf(c.KeyQuery)
	if err != nil {
		return view.KeyResult{}, err
	}
	if named {
		return n.changeNetwork(ctx, c, network)
	}
	change, isPlan := n.proxy.Change, c.Action == view.KeyAssign || c.Action == view.KeyUnassign
	if isPlan {
		change = n.changePlan
	}
	r, err := change(ctx, c)
	if errors.Is(err, view.ErrKeyQuery) {
		return r, err
	}
	if err == nil && r.Everywhere && !isPlan {
		n.spread(ctx, &r)
	}
	e := cluster.AuditOf(admin.OperatorOf(ctx).Name, c, r, err)
	n.recordLater(ctx, e, &r)
	n.events.Publish(admin.Event{Type: admin.EventKey, Action: e.Action, Who: e.Who, Masked: e.Masked, KeyHash: e.Hash, Error: e.Error})
	return r, err
}

// operatorOutcome applies an outcome for an operator. An invalid one is not recorded.
func (n *Node) operatorOutcome(ctx context.Context, o proxy.Outcome) (proxy.OutcomeResult, error) {
	r, err := n.proxy.ApplyOutcome(ctx, o)
	err = whileAway(err, "report the outcome again when it is back")
	if errors.Is(err, view.ErrKeyQuery) {
		return r, err
	}
	e := view.AuditEntry{Action: o.Outcome, Masked: r.Logged, Hash: r.Hash, Error: proxy.ErrorText(err)}
	for _, l := range r.Returned {
		e.Limits = append(e.Limits, l.Route+"."+l.Limit)
	}
	n.record(ctx, e)
	return r, err
}

// operatorReload reloads the configuration for an operator.
func (n *Node) operatorReload(ctx context.Context) (admin.Reloaded, error) {
	r, err := n.reload(ctx)
	n.record(ctx, configAudit("reload", fmt.Sprintf("generation %d", r.Generation), err))
	return r, err
}

// publishReload publishes the result of a reload or push to the subscribers of events.
func (n *Node) publishReload(generation int64, hash string, err error) {
	one := admin.Event{Type: admin.EventReload, Generation: generation, Hash: hash}
	if err != nil {
		one.Error = err.Error()
	}
	n.events.Publish(one)
}

// whileAway returns err as operators are told that they could not change something: if Redis cannot be reached, with
// that first, whatever noticed it, and then what to do. A push of which the outcome is unknown says so itself.
func whileAway(err error, advice string) error {
	if text, away := proxy.Unreachable(err); away && !errors.Is(err, cluster.ErrUnknown) {
		return &admin.Problem{Status: http.StatusServiceUnavailable, Detail: strings.Replace(text, "the store is", "redis is", 1) + "; " + advice}
	}
	return err
}

// configAudit returns the audit entry for a change of the configuration.
func configAudit(action, detail string, err error) view.AuditEntry {
	e := view.AuditEntry{Action: action, Detail: detail}
	if err != nil {
		e.Detail, e.Error = "", proxy.ErrorText(err)
	}
	return e
}

// auditTrail returns a page of the audit trail.
func (n *Node) auditTrail(ctx context.Context, q view.AuditQuery) (view.Audit, error) {
	page, err := n.audit.Page(ctx, q.Before, cmp.Or(q.N, 100))
	if errors.Is(err, cluster.ErrAuditID) {
		err = &admin.Problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("before=%s is not the id of an entry; write what an earlier page names as next", q.Before)}
	}
	return page, err
}
