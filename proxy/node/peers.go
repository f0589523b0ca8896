package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// watchPeers reacts to the other nodes, until ctx is done: it logs configuration drift, and rejoins
// the cluster after Redis was unreachable.
func (n *Node) watchPeers(ctx context.Context) {
	node := n.store.cluster
	if node == nil {
		return
	}
	for {
		select {
		case others := <-node.Drifted():
			if others > 0 {
				n.log.Warn().Int("nodes", others).Msg("config drift; other nodes serve another configuration")
			} else {
				n.log.Info().Msg("config drift ended")
			}
		case <-node.LostMore():
			n.logLost(ctx)
		case <-node.Returned():
			if n.source.served() == nil {
				n.rejoin(ctx) // a pushed configuration is restored by following pushes
			}
		case <-ctx.Done():
			return
		}
	}
}

// logLost logs the node that was lost last.
func (n *Node) logLost(ctx context.Context) {
	if lost, err := n.store.cluster.Lost(ctx); err == nil && len(lost) > 0 {
		n.log.Warn().Str("node", lost[0].ID).Str("address", lost[0].Address).Time("seen", lost[0].Seen).Int("lost", len(lost)).
			Msg("node lost; it has not stopped, and is not heard any more")
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
	gauge("config_drift", "Other nodes that have served another configuration for longer than a reload takes.", n.Drift)
}
