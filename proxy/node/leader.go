package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
)

// leaderTasks runs the tasks of this node while it is the leader of its cluster, and reports on
// them. A node without a cluster is always its own leader.
type leaderTasks struct {
	store       store
	leader      *cluster.Leader
	statistics  *cluster.Statistics
	log         zerolog.Logger
	leaderGauge prometheus.Gauge
	runs        *prometheus.CounterVec
	alerts      *prometheus.CounterVec
	ended       atomic.Bool // run has returned

	mu     sync.Mutex      // guards what follows
	failed map[string]bool // tasks whose last run has failed
}

// newLeaderTasks creates the tasks that are done once for all nodes that share the store.
func (n *Node) newLeaderTasks() *leaderTasks {
	s, p, register := n.store, n.proxy, promauto.With(n.registry)
	l := &leaderTasks{
		store:       s,
		log:         n.log,
		statistics:  cluster.NewStatistics(s.client, s.prefix, s.id, p),
		failed:      map[string]bool{},
		leaderGauge: register.NewGauge(prometheus.GaugeOpts{Name: "weir_leader", Help: "1 while this node is the leader."}),
		runs: register.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_leader_task_runs_total", Help: "Runs of leader tasks on this node.",
		}, []string{"task", "result"}),
	}
	l.alerts = register.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_alerts_total", Help: "Attempts to send an alert to the webhook, and dropped alerts, on this node.",
	}, []string{"kind", "result"})
	for _, kind := range []string{cluster.KindRefused, cluster.KindUsed, cluster.KindConversion} {
		l.alerts.WithLabelValues(kind, cluster.Sent)
	}
	alarm := cluster.NewAlerter(cluster.AlerterOptions{Statistics: l.statistics, Rules: p.Alerts, Sends: n.passedOnSends, Done: l.alerted})
	tasks := []cluster.Task{l.statistics.Task(), alarm.Task(), alarm.ConversionTask()}
	if s.cluster != nil {
		tasks = append(tasks, cluster.NewSweep(s.client, s.prefix, cluster.DefaultGrace, s.cluster.Nodes).Task())
	}
	for _, task := range tasks {
		l.runs.WithLabelValues(task.Name, "ok")
		l.runs.WithLabelValues(task.Name, "failed")
	}
	l.leader = cluster.NewLeader(cluster.LeaderOptions{
		Client: s.client, Prefix: s.prefix, ID: s.id, Tasks: tasks,
		Acquired: l.acquired, Lost: l.lost, Ran: l.ran,
	})
	return l
}

// run competes for the leadership and reports this node's counts, until ctx is done.
func (l *leaderTasks) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { l.statistics.Run(ctx) })
	all.Go(func() {
		if err := l.leader.Run(ctx); ctx.Err() == nil {
			l.log.Error().Err(err).Msg("leadership lost")
		}
	})
	all.Wait()
	l.ended.Store(true)
}

// close reports the last counts, unless run has not been called or has not returned.
func (l *leaderTasks) close(ctx context.Context) error {
	if !l.ended.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := l.statistics.Flush(ctx); err != nil {
		l.log.Warn().Err(err).Msg("last statistics not reported")
	}
	return nil
}

func (l *leaderTasks) acquired(t cluster.Term) {
	l.leaderGauge.Set(1)
	if l.store.cluster == nil {
		return
	}
	l.log.Info().Str("node", l.store.id).Int64("token", t.Token).Msg("leadership acquired")
}

func (l *leaderTasks) lost(t cluster.Term, cause error) {
	l.leaderGauge.Set(0)
	if l.store.cluster == nil {
		return
	}
	level := zerolog.WarnLevel
	if errors.Is(cause, context.Canceled) { // the node is closing
		level, cause = zerolog.InfoLevel, nil
	}
	l.log.WithLevel(level).Err(cause).Str("node", l.store.id).Int64("token", t.Token).Float64("for_s", time.Since(t.Since).Seconds()).Msg("leadership lost")
}

// alerted counts the result of sending an alert, and logs it. Alerts that will be retried are not
// logged here, because the failure of their task is.
func (l *leaderTasks) alerted(a cluster.Alert, result string, err error) {
	l.alerts.WithLabelValues(a.Kind, result).Inc()
	if result == cluster.Failed {
		return
	}
	level := zerolog.InfoLevel
	if result == cluster.Dropped {
		level = zerolog.WarnLevel
	}
	l.log.WithLevel(level).Err(err).Str("id", a.ID).Str("kind", a.Kind).Str("route", a.Route).Str("limit", a.Limit).
		Int64("count", a.Count).Str("result", result).Msg("alert")
}

// ran counts a run of a task, and logs when the task begins to fail or recovers.
func (l *leaderTasks) ran(r view.TaskRun) {
	result := "ok"
	if r.Error != "" {
		result = "failed"
	}
	l.runs.WithLabelValues(r.Task, result).Inc()
	l.mu.Lock()
	before := l.failed[r.Task]
	l.failed[r.Task] = r.Error != ""
	l.mu.Unlock()
	switch {
	case r.Error != "" && !before:
		l.log.Warn().Str("task", r.Task).Str("error", r.Error).Msg("leader task failed")
	case r.Error == "" && before:
		l.log.Info().Str("task", r.Task).Msg("leader task recovered")
	}
}

// saltInterval is the interval at which the salt is agreed on again, in case Redis has lost it.
const saltInterval = time.Hour

// A salt is the salt of hashes in this node's log: the one that all nodes of the cluster share, or
// a random one until Redis is reachable and without a cluster.
type salt struct {
	store   store
	current atomic.Pointer[proxy.Salt]
}

func newSalt(s store) *salt {
	made := &salt{store: s}
	made.current.Store(new(proxy.NewSalt()))
	return made
}

// value returns the current salt.
func (s *salt) value() proxy.Salt { return *s.current.Load() }

// agree adopts the salt of the cluster. It reports whether Redis was reachable.
func (s *salt) agree(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	agreed, err := cluster.Salt(ctx, s.store.client, s.store.prefix, s.value())
	if err != nil {
		return false
	}
	s.current.Store(new(proxy.Salt(agreed)))
	return true
}

// run agrees on the salt at the start and at intervals, until ctx is done.
func (s *salt) run(ctx context.Context) {
	for s.store.client != nil && ctx.Err() == nil {
		pause := connectTimeout
		if s.agree(ctx) {
			pause = saltInterval
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
