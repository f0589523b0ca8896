package proxy

import (
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/view"
)

// Upstreams returns the state of the upstreams of the current generation on this node, in random
// order. Counts are read from the metrics.
func (p *Proxy) Upstreams() []view.UpstreamStanding {
	g := p.current.Load()
	results, retried := p.metrics.forwardResults()
	all := []view.UpstreamStanding{}
	for from, pool := range g.pools {
		standing := view.UpstreamStanding{UpstreamState: view.UpstreamState{
			Name: from.Name, Echo: from.Echo, Routes: []string{}, Balance: string(from.Balance), Protocol: string(from.Protocol),
			MaxConnections: from.MaxConnections, Queue: from.Queue.Length, Retries: from.Retries, Retried: retried[from.Name], Checked: from.Health.Path,
		}}
		for _, r := range g.routes {
			if r.pool == pool {
				standing.Routes = append(standing.Routes, r.Name)
			}
		}
		standing.Targets, standing.Waiting = targetStandings(pool, results)
		all = append(all, standing)
	}
	return all
}

// A TargetName identifies a target.
type TargetName struct{ Upstream, Target string }

// A TargetDown is a target that cannot be connected to, or that is unhealthy.
type TargetDown struct {
	TargetName
	FailedConnects, FailedChecks int // consecutive failures
}

// DownTargets returns the targets of the current generation that are down on this node.
func (p *Proxy) DownTargets() []TargetDown {
	var down []TargetDown
	for from, pool := range p.current.Load().pools {
		standings, _ := pool.TargetStandings()
		for _, s := range standings {
			if s.FailedConnects > 0 || s.State == view.Unhealthy {
				down = append(down, TargetDown{TargetName{from.Name, s.Target}, s.FailedConnects, s.FailedChecks})
			}
		}
	}
	return down
}

// A targetSeries identifies the counts of a target.
type targetSeries struct{ upstream, target string }

// forwardResults returns the number of forwarded requests by result, and the number of retries by
// upstream.
func (m *proxyMetrics) forwardResults() (results map[targetSeries]map[string]int64, retried map[string]int64) {
	results, retried = map[targetSeries]map[string]int64{}, map[string]int64{}
	eachSeries(m.upstreamRequests, func(label map[string]string, n int64) {
		s := targetSeries{label["upstream"], label["target"]}
		if results[s] == nil {
			results[s] = map[string]int64{}
		}
		results[s][label["result"]] += n
	})
	eachSeries(m.retries, func(label map[string]string, n int64) { retried[label["upstream"]] += n })
	return results, retried
}

func targetStandings(pool *upstream.Pool, results map[targetSeries]map[string]int64) (all []view.TargetStanding, waiting int) {
	all, waiting = pool.TargetStandings()
	for i := range all {
		s := &all[i]
		s.Results = map[string]int64{}
		for result, n := range results[targetSeries{pool.Name(), s.Target}] {
			s.Results[result] = n
			s.Requests += n
			if isTargetError(result) {
				s.Errors += n
			}
		}
	}
	return all, waiting
}

// isTargetError reports whether a result counts as an error of the target or the connection to it.
func isTargetError(result string) bool {
	switch result {
	case "connect", "connect_timeout", "timeout", "bad_response", "reset", "cut", "other":
		return true
	}
	return false
}
