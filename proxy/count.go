package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A Series identifies a count: the requests of a route by their outcomes, with Limit empty, or the
// decisions of one of its limits. A request that two limits refused is one refused request and two
// refusals.
type Series struct {
	Route string `json:"route"` // none: no route matched
	Limit string `json:"limit,omitempty"`
	// Result is allowed, refused, shadow_refused or unavailable (decided without the store). That of
	// a request may also be rejected: not forwarded for another reason than a limit.
	Result string `json:"result,omitempty"`
}

// Counts returns the counts since the process started. They are read from the metrics, so serving
// requests has no additional cost.
func (p *Proxy) Counts() map[Series]int64 {
	counts := map[Series]int64{}
	eachSeries(p.metrics.outcomes, func(label map[string]string, n int64) {
		counts[Series{Route: label["route"], Result: label["outcome"]}] += n
	})
	eachSeries(p.metrics.decisions, func(label map[string]string, n int64) {
		counts[Series{label["route"], label["limit"], label["result"]}] += n
	})
	return counts
}

// eachSeries calls do for each series of v with its labels and its value.
func eachSeries(v *prometheus.CounterVec, do func(label map[string]string, n int64)) {
	all := make(chan prometheus.Metric, 64)
	go func() {
		v.Collect(all)
		close(all)
	}()
	for one := range all {
		var m dto.Metric
		if err := one.Write(&m); err != nil {
			continue // a counter can always be written
		}
		label := map[string]string{}
		for _, l := range m.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		do(label, int64(m.GetCounter().GetValue()))
	}
}
