package proxy

import (
	"time"

	"github.com/weir-proxy/weir/proxy/upstream"
)

// An UpstreamQuery selects upstreams. An empty name selects all.
type UpstreamQuery struct {
	Name string `json:"name,omitempty"`
}

// An UpstreamStanding is the state of one upstream and its targets on a node.
type UpstreamStanding struct {
	UpstreamState
	Targets []TargetStanding `json:"targets"` // in the order of the configuration
}

// An UpstreamState is the state of one upstream. Of several nodes, the counts are sums.
type UpstreamState struct {
	Name           string   `json:"name"`
	Echo           bool     `json:"echo,omitempty"` // built in, with one target
	Routes         []string `json:"routes"`         // the routes that forward to it
	Balance        string   `json:"balance"`
	Protocol       string   `json:"protocol"`
	MaxConnections int      `json:"max_connections,omitempty"` // maximum concurrent requests of a target; 0 for no limit
	Queue          int      `json:"queue,omitempty"`           // maximum number of waiting requests on each node
	Waiting        int      `json:"waiting"`                   // current number of waiting requests
	Retries        int      `json:"retries,omitempty"`         // maximum number of retries of one request
	Retried        int64    `json:"retried"`                   // number of retries since the process started
	Checked        string   `json:"checked,omitempty"`         // path of active health checks; empty if there are none
}

// A TargetStanding is the state of one target.
type TargetStanding struct {
	Target string `json:"target"` // its URL
	Weight int    `json:"weight"`
	TargetState
	Results map[string]int64 `json:"results"` // counts all requests by result, with the label values of the metrics
}

// A TargetState is the health and the load of one target on one node.
type TargetState struct {
	State          string    `json:"state"`                     // healthy, slow_start, probing, ejected or unhealthy
	FailedConnects int       `json:"failed_connects,omitempty"` // consecutive
	FailedChecks   int       `json:"failed_checks,omitempty"`   // consecutive
	EjectedUntil   time.Time `json:"ejected_until,omitzero"`    // by the clock of the node
	Share          float64   `json:"share"`                     // of the traffic of a healthy target, from 0 to 1
	InFlight       int       `json:"in_flight"`
	// Requests counts the requests whose last attempt used this target, since the process started.
	// Errors counts those that failed because of the target or the connection to it.
	Requests int64 `json:"requests"`
	Errors   int64 `json:"errors"`
}

// Upstreams returns the state of the upstreams of the current generation on this node, in random
// order. Counts are read from the metrics.
func (p *Proxy) Upstreams(q UpstreamQuery) []UpstreamStanding {
	g := p.current.Load()
	results, retried := p.metrics.forwardResults()
	all := []UpstreamStanding{}
	for from, pool := range g.pools {
		if q.Name != "" && q.Name != from.Name {
			continue
		}
		standing := UpstreamStanding{UpstreamState: UpstreamState{
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
		standings, _ := pool.TargetStatuses()
		for _, s := range standings {
			if s.FailedConnects > 0 || s.Condition == upstream.Unhealthy {
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

func targetStandings(pool *upstream.Pool, results map[targetSeries]map[string]int64) (all []TargetStanding, waiting int) {
	standings, waiting := pool.TargetStatuses()
	for _, s := range standings {
		standing := TargetStanding{Target: s.Target, Weight: s.Weight, Results: map[string]int64{}, TargetState: TargetState{
			State: string(s.Condition), FailedConnects: s.FailedConnects, FailedChecks: s.FailedChecks,
			EjectedUntil: s.EjectedUntil, Share: s.Share, InFlight: s.InFlight,
		}}
		for result, n := range results[targetSeries{pool.Name(), s.Target}] {
			standing.Results[result] = n
			standing.Requests += n
			if isTargetError(result) {
				standing.Errors += n
			}
		}
		all = append(all, standing)
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
