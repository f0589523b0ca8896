package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// defaultDecisions and defaultKeys are the default numbers of results.
	defaultDecisions = 100
	defaultKeys      = 20
	// keysAhead is the factor by which more keys are requested from each node than are returned, so
	// that keys that are among the first of all nodes together are included by most nodes, and that
	// enough remain when uncertain ones are left out; minKeys and maxKeys are the minimum and the
	// maximum number requested.
	keysAhead = 4
	minKeys   = 40
	maxKeys   = 1000
)

// localAnswer returns the answer of this node to a question of another one.
func (n *Node) localAnswer(ctx context.Context, q cluster.Question) cluster.Seen {
	var s cluster.Seen
	switch {
	case q.Decisions != nil:
		s.Decisions = n.proxy.Decisions(*q.Decisions)
	case q.Top != nil:
		s.Top = new(n.proxy.Top(*q.Top))
	case q.Sends != nil:
		s.Sends = new(n.proxy.TopSends(*q.Sends))
	case q.Upstreams != nil:
		s.Upstreams = n.proxy.Upstreams()
	case q.Directives:
		s.Followed = n.directives.Sync(ctx) == nil
	case q.Config != nil && slices.Contains(q.Config.Nodes, n.store.id):
		_, c := n.proxy.Serving()
		s.Config = &cluster.SeenConfig{Hash: c.Hash, Parts: c.Parts(q.Config.Once)}
	}
	return s
}

// gatherAnswers returns the answers of this node and of all others, this node first, and which nodes have
// replied.
func (n *Node) gatherAnswers(ctx context.Context, q cluster.Question) ([]cluster.Reply, []view.NodeAnswer) {
	all := []cluster.Reply{{NodeAnswer: view.NodeAnswer{Node: n.store.id, Said: "ok"}, Seen: n.localAnswer(ctx, q)}}
	said := []view.NodeAnswer{all[0].NodeAnswer}
	if n.store.cluster == nil {
		return all, said
	}
	others, err := n.store.cluster.Ask(ctx, q)
	if err != nil {
		return all, append(said, view.NodeAnswer{Node: "all other nodes", Said: "not asked: " + proxy.ErrorText(err)})
	}
	all = append(all, others...)
	return all, view.Each(all, func(r cluster.Reply) view.NodeAnswer { return r.NodeAnswer })
}

// decisions returns the recent decisions of all nodes, newest first.
func (n *Node) decisions(ctx context.Context, q view.DecisionQuery) (found view.Decisions, err error) {
	q.N = cmp.Or(max(q.N, 0), defaultDecisions)
	if q.Key != "" && !proxy.NamesKey(q.Key) { // it may be a raw key, which must not be sent to other nodes, and would not be found
		return view.Decisions{Decisions: []view.Decision{}, Nodes: []view.NodeAnswer{}}, nil
	}
	q.Route, q.Limit, err = n.proxy.CheckNames(q.Route, q.Limit)
	seen, said := n.gatherAnswers(ctx, cluster.Question{Decisions: &q})
	found = view.Decisions{Decisions: mergeDecisions(q.N, seen), Nodes: said}
	if len(found.Decisions) > 0 {
		err = nil // the names are of a configuration before
	}
	return found, err
}

// mergeDecisions returns the newest decisions of all nodes. If the reply of a node was truncated,
// decisions older than its oldest one are omitted for all nodes; otherwise it would seem that this
// node had none in that time.
func mergeDecisions(most int, seen []cluster.Reply) []view.Decision {
	var since time.Time
	all := []view.Decision{}
	for _, r := range seen {
		for _, d := range r.Seen.Decisions {
			d.Challenge = "" // the summary has it
			all = append(all, view.Decision{Node: r.Node, Decided: d})
		}
		if r.Seen.Cut && len(r.Seen.Decisions) > 0 {
			if first := r.Seen.Decisions[len(r.Seen.Decisions)-1].At; first.After(since) {
				since = first
			}
		}
	}
	slices.SortStableFunc(all, func(a, b view.Decision) int { return b.At.Compare(a.At) })
	all = slices.DeleteFunc(all, func(d view.Decision) bool { return d.At.Before(since) })
	return all[:min(len(all), most)]
}

// top returns the most frequent keys of all nodes together.
func (n *Node) top(ctx context.Context, q view.TopQuery) (_ view.Top, err error) {
	if q.Route, q.Limit, err = n.proxy.CheckNames(q.Route, q.Limit); err != nil {
		return view.Top{}, err
	}
	return n.gatherTops(ctx, &q.N, cluster.Question{Top: &q}), nil
}

// conversion returns what became of the requests of limits with return_on: of the keys of which all nodes together have passed
// on most.
func (n *Node) conversion(ctx context.Context, q sends.Query) (admin.Conversion, error) {
	top := n.gatherTops(ctx, &q.N, cluster.Question{Sends: &q})
	limits, err := n.proxy.Sends(ctx, q, top)
	return admin.Conversion{Limits: limits, Nodes: top.Nodes}, err
}

// gatherTops returns the keys that the answers of all nodes to q have most of, at most that many of each limit. It sets that
// number of q to how many a node is asked for.
func (n *Node) gatherTops(ctx context.Context, number *int, q cluster.Question) view.Top {
	most := cmp.Or(max(*number, 0), defaultKeys)
	*number = min(max(keysAhead*most, minKeys), maxKeys)
	seen, said := n.gatherAnswers(ctx, q)
	var tops []view.Top
	for _, r := range seen {
		if t := cmp.Or(r.Seen.Top, r.Seen.Sends); t != nil {
			tops = append(tops, *t)
		}
	}
	all := decisions.MergeTops(most, tops...)
	all.Nodes = said
	return all
}

// passedOnSends returns them as they may leave the cluster.
func (n *Node) passedOnSends(ctx context.Context) ([]sends.LimitCounts, error) {
	all, err := n.conversion(ctx, sends.Query{PassedOn: true})
	return all.Limits, err
}

// watchPeers reacts to the other nodes, until ctx is done: it logs configuration drift, and rejoins
// the cluster after Redis was unreachable.
func (n *Node) watchPeers(ctx context.Context) {
	node := n.store.cluster
	for {
		select {
		case others := <-node.Drifted():
			if others > 0 {
				n.log.Warn().Int("nodes", others).Msg("config drift; other nodes serve another configuration")
			} else {
				n.log.Info().Msg("config drift ended")
			}
		case <-node.LostMore():
			if lost, err := node.Lost(ctx); err == nil && len(lost) > 0 { // the latest first
				n.log.Warn().Str("node", lost[0].ID).Str("address", lost[0].Address).Time("seen", lost[0].Seen).Int("lost", len(lost)).
					Msg("node lost; it has not stopped, and is not heard any more")
			}
		case <-node.Returned():
			if n.source.bundle.Load() == nil {
				n.report(n.proxy.Rejoin(ctx)) // a pushed configuration is restored by following pushes
			}
		case <-ctx.Done():
			return
		}
	}
}

// registerMetrics registers the metrics of the cluster and the store.
func (s store) registerMetrics(r prometheus.Registerer) {
	for i, result := range []string{"counted", "lost"} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "weir_store_reported_permits_total", ConstLabels: prometheus.Labels{"result": result},
			Help: "Permits granted while the store was unreachable, by whether they have been reported to it since.",
		}, func() float64 {
			heard, lost := s.reported()
			return float64([]int64{heard, lost}[i])
		}))
	}
	n := s.cluster
	gauge := func(name, help string, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_cluster_" + name, Help: help}, func() float64 { return float64(value()) }))
	}
	gauge("nodes", "Live nodes that share the store, as of the last heartbeat.", n.Live)
	gauge("nodes_lost", "Nodes that ended without stopping, or were cut off, in the last hour, and have not returned.", n.LostCount)
	gauge("masters_by_slot", "Masters of a Redis Cluster that this node sends a script call for each slot, not one for all.", func() int { return len(s.bySlot()) })
	gauge("config_drift", "Other nodes that have served another configuration for longer than a reload takes.", n.Drift)
}

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
	u.Waiting, u.Retried = 0, 0
	return view.Upstream{UpstreamState: u.UpstreamState, Targets: view.Each(u.Targets, func(t view.TargetStanding) view.Target {
		return view.Target{Target: t.Target, Weight: t.Weight, Results: map[string]int64{}, Nodes: []view.TargetNode{}}
	})}
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

// watchTargets logs, until ctx is done, when a target of an upstream goes down and when it is up again:
// one warning for each change.
func (n *Node) watchTargets(ctx context.Context) {
	known := downTargets{}
	every(ctx, connectTimeout, func() { known = known.logChanges(n.log, n.proxy.DownTargets()) })
}

// downTargets are the targets that are down.
type downTargets map[proxy.TargetName]view.TargetState

// logChanges logs the differences between d and the targets that are down now, which it returns.
func (d downTargets) logChanges(log zerolog.Logger, now downTargets) downTargets {
	for name, t := range now {
		if _, known := d[name]; !known {
			log.Warn().Str("upstream", name.Upstream).Str("target", name.Target).Int("failed_connects", t.FailedConnects).Int("failed_checks", t.FailedChecks).Msg("upstream target down")
		}
	}
	for name := range d {
		if _, down := now[name]; !down {
			log.Warn().Str("upstream", name.Upstream).Str("target", name.Target).Msg("upstream target up")
		}
	}
	return now
}

// servedConfig returns the current configuration; servedRoutes and servedLimits what it has.
func (n *Node) servedConfig(context.Context) (view.Config, error) {
	number, c := n.proxy.Serving()
	return view.Config{Node: n.store.id, Generation: number, Hash: c.Hash, Effective: string(c.Effective())}, nil
}

func (n *Node) servedRoutes(context.Context) (view.Routes, error) {
	number, c := n.proxy.Serving()
	return view.Routes{Generation: number, Routes: view.Each(c.Routes, c.View)}, nil
}

func (n *Node) servedLimits(context.Context) (view.Limits, error) {
	number, c := n.proxy.Serving()
	return view.Limits{Generation: number, Limits: view.Each(c.Limits(), (*config.Limit).View)}, nil
}
