package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/admin/dashboard"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
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
		if err != nil {
			return admin.Nodes{}, &admin.Problem{Status: http.StatusServiceUnavailable, Detail: proxy.ErrorText(err), Live: []view.Member{n.self()}}
		}
		all := nodesOf(n.store.id, nodes, lost)
		n.compareGroups(ctx, all.Configurations)
		if n.store.cluster != nil {
			all.Awaited = n.store.cluster.Awaited()
		}
		return all, nil
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
	number, now := n.proxy.Serving()
	return view.Member{
		ID: n.store.id, Address: n.Address("admin"), Version: n.build.Version, Source: string(n.source.machine.Reload.Source),
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
	e.Limits = view.Each(r.Returned, func(l proxy.ReturnedLimit) string { return l.Route + "." + l.Limit })
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
	n.events.Publish(admin.Event{Type: admin.EventReload, Generation: generation, Hash: hash, Error: proxy.ErrorText(err)})
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

// changeNetwork bans or unbans a network for an operator.
func (n *Node) changeNetwork(ctx context.Context, c view.KeyChange, network netip.Prefix) (r view.KeyResult, err error) {
	one := directive.Directive{Network: network, Route: c.Route, Who: admin.OperatorOf(ctx).Name, Reason: c.Reason}
	r = view.KeyResult{KeyChange: c, Network: &network, Changed: []view.LimitStanding{}}
	r.Pairs = nil
	_, served := n.proxy.Serving()
	own, _ := network.Addr().Prefix(min(served.ClientIP.IPv6Prefix, network.Bits())) // of one client, if network is smaller
	if c.Action == view.KeyBan && network.Addr().Is6() && own != network {
		return r, fmt.Errorf("%w: clients count by their /%d, and have all addresses in it; write %s", view.ErrKeyQuery, own.Bits(), own)
	}
	e := view.AuditEntry{Action: string(c.Action), Masked: "client_ip=" + network.String(), Reason: c.Reason, Limits: []string{}}
	switch c.Action {
	case view.KeyBan:
		e.For = c.For.String()
		r.Everywhere, err = n.putDirective(ctx, &one, time.Duration(c.For))
	case view.KeyUnban:
		found := false
		if found, r.Everywhere = n.directives.Remove(ctx, one); !found {
			return r, fmt.Errorf("%w: there is no ban of %s to end; weir keys bans lists the networks that are banned", view.ErrKeyQuery, network)
		}
	default:
		return r, fmt.Errorf("%w: a network can be banned and unbanned; for anything else name an address", view.ErrKeyQuery)
	}
	if err != nil {
		return r, err
	}
	r.At, r.Settled = time.Now(), func() (settled, everywhere bool) { return n.directives.Settled(one) }
	e.OneNode = !r.Everywhere
	n.spread(ctx, &r)
	r.Now, e.Behind = n.proxy.Now(ctx, c), r.Behind
	n.recordLater(ctx, e, &r)
	n.events.Publish(admin.Event{Type: admin.EventKey, Action: e.Action, Who: one.Who, Masked: e.Masked})
	return r, nil
}

// spread waits until all nodes follow a change of directives, or have been heard from after one of a key, which is in the store. Of
// the others it sets what is to be said.
func (n *Node) spread(ctx context.Context, r *view.KeyResult) {
	if r.Later = !r.Everywhere; r.Everywhere {
		r.Behind = n.nodesBehind(ctx)
		r.Everywhere = len(r.Behind) == 0
	}
}

// followTimeout is how long other nodes have to say that they follow a change of directives. After it they do
// so unasked.
const followTimeout = time.Second

// nodesBehind makes all nodes follow the directives of now, and returns those that did not say that they do.
func (n *Node) nodesBehind(ctx context.Context) []string {
	if n.store.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), followTimeout)
	defer cancel()
	replies, err := n.store.cluster.Ask(ctx, cluster.Question{Directives: true})
	if err != nil {
		return []string{"others"}
	}
	replies = slices.DeleteFunc(replies, func(r cluster.Reply) bool { return r.Seen.Followed })
	return view.Each(replies, func(r cluster.Reply) string { return r.Node })
}

// putDirective makes one hold for some time. One of a route that is gone can only be ended.
func (n *Node) putDirective(ctx context.Context, one *directive.Directive, d time.Duration) (everywhere bool, err error) {
	if _, _, err = n.proxy.CheckNames(one.Route, ""); err != nil {
		return false, err
	}
	if d <= 0 || limiter.CheckBan(d) != nil {
		return false, fmt.Errorf("%w: the time (for) is from 1ms to 366d; write for example 1h", view.ErrKeyQuery)
	}
	one.Who, one.At = admin.OperatorOf(ctx).Name, time.Now().UTC().Truncate(time.Millisecond)
	one.Until = one.At.Add(d)
	return n.directives.Put(ctx, *one)
}

// bans returns the bans of networks.
func (n *Node) bans(context.Context) (admin.Bans, error) {
	return admin.Bans{Networks: n.held(func(d directive.Directive) bool { return d.Network.IsValid() })}, nil
}

// held returns the directives of a kind that hold.
func (n *Node) held(is func(directive.Directive) bool) []directive.Directive {
	return slices.DeleteFunc(append([]directive.Directive{}, n.directives.All()...), func(d directive.Directive) bool { return !is(d) })
}

// maintenance returns the routes under maintenance.
func (n *Node) maintenance(context.Context) (admin.Maintenance, error) {
	settled, _ := n.directives.Settled()
	return admin.Maintenance{On: n.held(directive.Directive.IsMaintenance), Everywhere: settled}, nil
}

// setMaintenance begins or ends maintenance for an operator.
func (n *Node) setMaintenance(ctx context.Context, c admin.MaintenanceChange) (m admin.Maintenance, err error) {
	one := directive.Directive{Route: c.Route, Reason: c.Reason}
	e := view.AuditEntry{Action: "maintenance off", Reason: c.Reason, Detail: "all routes"}
	if c.Route != "" {
		e.Detail = "route " + c.Route
	}
	found, everywhere := true, false
	if c.On {
		e.Action, e.For = "maintenance on", map[bool]string{true: c.For.String()}[c.For != 0]
		everywhere, err = n.putDirective(ctx, &one, cmp.Or(time.Duration(c.For), limiter.MaxWindow))
	} else if found, everywhere = n.directives.Remove(ctx, one); !found {
		held := view.Each(n.held(directive.Directive.IsMaintenance), func(d directive.Directive) string { return cmp.Or(d.Route, "all routes") })
		err = fmt.Errorf("%w: there is no maintenance of %s to end; under maintenance: %s", view.ErrKeyQuery, e.Detail, cmp.Or(strings.Join(held, ", "), "no route"))
	}
	if err != nil {
		return m, err
	}
	r := view.KeyResult{Everywhere: everywhere, Network: &one.Network, Settled: func() (settled, everywhere bool) { return n.directives.Settled(one) }}
	n.spread(ctx, &r)
	e.OneNode, e.Behind = r.Later, r.Behind
	n.recordLater(ctx, e, &r)
	m, err = n.maintenance(ctx)
	m.Behind, m.Everywhere = r.Behind, m.Everywhere && len(r.Behind) == 0
	return m, err
}

// plans returns the plans that operators have assigned to keys.
func (n *Node) plans(context.Context) (admin.Plans, error) {
	all := admin.Plans{Keys: []admin.AssignedPlan{}}
	for _, d := range n.held(directive.Directive.IsPlan) {
		hash, id := n.proxy.NameKey(d)
		d.Key.Hash = hash
		all.Keys = append(all.Keys, admin.AssignedPlan{Directive: d, ID: id})
	}
	return all, nil
}

// changePlan assigns a plan to a key for an operator, or ends that.
func (n *Node) changePlan(ctx context.Context, c view.KeyChange) (r view.KeyResult, err error) {
	all, err := n.proxy.Assignments(c)
	if err != nil {
		return r, err
	}
	before, err := n.proxy.Standing(ctx, c.KeyQuery)
	if err != nil {
		return r, err
	}
	r = view.KeyResult{KeyChange: c, Everywhere: true, Settled: func() (settled, everywhere bool) { return n.directives.Settled(all...) }}
	r.Pairs = nil
	ended := false
	for i := range all {
		var everywhere, found bool
		one := &all[i]
		if c.Action == view.KeyAssign {
			everywhere, err = n.putDirective(ctx, one, time.Duration(c.For))
		} else {
			found, everywhere = n.directives.Remove(ctx, *one)
		}
		if err != nil {
			return r, err
		}
		r.Everywhere, ended = r.Everywhere && everywhere, ended || found
	}
	if c.Action == view.KeyUnassign && !ended {
		return r, fmt.Errorf("%w: there is no assignment of a plan to this key to end; weir keys plans lists those that there are", view.ErrKeyQuery)
	}
	n.spread(ctx, &r)
	after, err := n.proxy.Standing(ctx, c.KeyQuery)
	r.At, r.Notes, r.Now = after.At, after.Notes, n.proxy.Now(ctx, c)
	r.Changed = assigned(after.Limits, before.Limits)
	return r, err
}

// assigned returns the limits under which the key has, or had before, a plan that was assigned.
func assigned(now, before []view.LimitStanding) []view.LimitStanding {
	return slices.DeleteFunc(append([]view.LimitStanding{}, now...), func(l view.LimitStanding) bool {
		return l.PlanUntil.IsZero() && !slices.ContainsFunc(before, func(b view.LimitStanding) bool {
			return b.Route == l.Route && b.Limit == l.Limit && !b.PlanUntil.IsZero()
		})
	})
}
