package proxy

import (
	"time"

	"github.com/weir-proxy/weir/proxy/upstream"
)

// An UpstreamQuery says which upstreams are asked for; an empty name is all.
type UpstreamQuery struct {
	Name string `json:"name,omitempty"`
}

// An UpstreamStanding is how one upstream is asked, and how its targets fare on a node.
type UpstreamStanding struct {
	Name     string   `json:"name"`
	Echo     bool     `json:"echo,omitempty"` // built in; it has one target
	Routes   []string `json:"routes"`         // that forward to it
	Balance  string   `json:"balance"`
	Protocol string   `json:"protocol"`
	// MaxConnections is how many requests a target works on at a time, 0 for any number;
	// Queue is how many may wait then, and Waiting how many do.
	MaxConnections int `json:"max_connections,omitempty"`
	Queue          int `json:"queue,omitempty"`
	Waiting        int `json:"waiting"`
	Retries        int `json:"retries,omitempty"` // more targets that one request may be taken to
	// Retried is how many requests were taken to one more since the process began.
	Retried int64 `json:"retried"`
	// Checked is the path by which health is checked actively; empty for not at all.
	Checked string           `json:"checked,omitempty"`
	Targets []TargetStanding `json:"targets"` // in the order of the configuration
}

// A TargetStanding is how one target fares.
type TargetStanding struct {
	Target string `json:"target"` // its URL
	Weight int    `json:"weight"`
	// State is healthy, slow_start, probing, ejected or unhealthy.
	State string `json:"state"`
	// FailedConnects and FailedChecks are how many in a row went wrong.
	FailedConnects int       `json:"failed_connects,omitempty"`
	FailedChecks   int       `json:"failed_checks,omitempty"`
	EjectedUntil   time.Time `json:"ejected_until,omitzero"`
	Share          float64   `json:"share"` // of what it gets in good health: 0 to 1
	InFlight       int       `json:"in_flight"`
	// Requests were to be forwarded and had this target as the last one asked, since the
	// process began; Errors are those of them for which the target or the way to it is to
	// blame, and Results are all of them by what came of it, as metrics call it.
	Requests int64            `json:"requests"`
	Errors   int64            `json:"errors"`
	Results  map[string]int64 `json:"results"`
}

// Upstreams is how the upstreams that are served fare on this node, in no order that
// stays. It is read off the figures that /metrics shows.
func (p *Proxy) Upstreams(q UpstreamQuery) []UpstreamStanding {
	g := p.current.Load()
	results, retried := p.metrics.forwardResults()
	all := []UpstreamStanding{}
	for from, pool := range g.pools {
		if q.Name != "" && q.Name != from.Name {
			continue
		}
		one := UpstreamStanding{
			Name: from.Name, Echo: from.Echo, Routes: []string{}, Balance: string(from.Balance), Protocol: string(from.Protocol),
			MaxConnections: from.MaxConnections, Queue: from.Queue.Length, Retries: from.Retries, Retried: retried[from.Name], Checked: from.Health.Path,
		}
		for _, r := range g.routes {
			if r.pool == pool {
				one.Routes = append(one.Routes, r.Name)
			}
		}
		one.Targets, one.Waiting = targetsOf(pool, results)
		all = append(all, one)
	}
	return all
}

// A targetSeries is what is counted of requests that were to be forwarded.
type targetSeries struct{ upstream, target string }

// forwardResults are how such requests ended, and how many were taken to one more target.
func (m *metrics) forwardResults() (results map[targetSeries]map[string]int64, retried map[string]int64) {
	results, retried = map[targetSeries]map[string]int64{}, map[string]int64{}
	each(m.upstreamRequests, func(label map[string]string, n int64) {
		s := targetSeries{label["upstream"], label["target"]}
		if results[s] == nil {
			results[s] = map[string]int64{}
		}
		results[s][label["result"]] += n
	})
	each(m.retries, func(label map[string]string, n int64) { retried[label["upstream"]] += n })
	return results, retried
}

func targetsOf(pool *upstream.Pool, results map[targetSeries]map[string]int64) (all []TargetStanding, waiting int) {
	standings, waiting := pool.TargetStatuses()
	for _, s := range standings {
		one := TargetStanding{
			Target: s.Target, Weight: s.Weight, State: string(s.Condition), FailedConnects: s.FailedConnects, FailedChecks: s.FailedChecks,
			EjectedUntil: s.EjectedUntil, Share: s.Share, InFlight: s.InFlight, Results: map[string]int64{},
		}
		for result, n := range results[targetSeries{pool.Name(), s.Target}] {
			one.Results[result] = n
			one.Requests += n
			if blames(result) {
				one.Errors += n
			}
		}
		all = append(all, one)
	}
	return all, waiting
}

// blames reports whether a request that ended so did for its target, or the way to it.
func blames(result string) bool {
	switch result {
	case "connect", "connect_timeout", "timeout", "bad_response", "reset", "cut", "other":
		return true
	}
	return false
}
