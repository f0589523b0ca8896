package proxy

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A healthCollector collects the health of the targets of the current generation. Targets that only
// an earlier configuration had are not reported.
type healthCollector struct {
	*prometheus.Desc
	proxy *Proxy
}

// registerHealth registers the collector of p.
func (m *proxyMetrics) registerHealth(r prometheus.Registerer, p *Proxy) {
	r.MustRegister(&healthCollector{
		prometheus.NewDesc("weir_upstream_healthy", "1 if a target is healthy, 0 if it is unhealthy or ejected.", []string{"upstream", "target"}, nil),
		p,
	})
}

// registerMemory registers the metrics of the keys counted in this process: by the store if it is in
// memory, otherwise by the local fallback.
func (m *proxyMetrics) registerMemory(r prometheus.Registerer, a *admitter) {
	counts, here := a.store.(interface {
		Keys() (keys int, bytes int64)
	})
	if !here {
		counts = a.fallback.local
	}
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_" + name, Help: help}, value))
	}
	gauge("memory_keys", "Keys counted in this process, with store: memory or while a shared store is unreachable.", func() float64 {
		keys, _ := counts.Keys()
		return float64(keys)
	})
	gauge("memory_key_bytes", "Memory used by the keys of weir_memory_keys.", func() float64 {
		_, bytes := counts.Keys()
		return float64(bytes)
	})
}

// Describe implements prometheus.Collector.
func (h *healthCollector) Describe(to chan<- *prometheus.Desc) { to <- h.Desc }

// Collect implements prometheus.Collector.
func (h *healthCollector) Collect(to chan<- prometheus.Metric) {
	for from, pool := range h.proxy.current.Load().pools {
		for _, s := range pool.TargetStates() {
			value := 0.0
			if s.Healthy {
				value = 1
			}
			to <- prometheus.MustNewConstMetric(h.Desc, prometheus.GaugeValue, value, from.Name, s.Target)
		}
	}
}

const (
	// countriesShown is the number of countries with metrics of their own, those with most requests on this node.
	countriesShown = 20
	// sendsTimeout bounds the calls to the store by one collection.
	sendsTimeout = time.Second
)

// A sendsCollector collects, for limits with return_on on countries, what the store says of the countries with most
// requests. The values of other keys are not fit for labels: there are too many, and they are those of persons.
type sendsCollector struct {
	open, allowed, ratio *prometheus.Desc
	proxy                *Proxy
}

// registerSends registers the collector of p.
func registerSends(r prometheus.Registerer, p *Proxy) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("weir_"+name, help, append([]string{"route", "limit", "country"}, labels...), nil)
	}
	r.MustRegister(&sendsCollector{
		desc("sends_open", "Permits of a limit with return_on that are taken, and neither refunded nor returned, on all nodes; of the countries with most requests on this node.", "window"),
		desc("limit_allowed", "Permits of such a limit that may be open now.", "window"),
		desc("conversion_ratio", "Part of the requests within the longest window of such a limit whose permits were returned, 0 to 1, on all nodes."),
		p,
	})
}

// Describe implements prometheus.Collector.
func (s *sendsCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.open, s.allowed, s.ratio} {
		to <- d
	}
}

// Collect implements prometheus.Collector. What the store does not tell in time is left out.
func (s *sendsCollector) Collect(to chan<- prometheus.Metric) {
	var countries []*limit
	for _, l := range s.proxy.current.Load().countingSends(sends.Query{}) {
		if l.Key.Of != nil && l.Key.Part.Kind == key.Country && !l.Key.Sensitive {
			countries = append(countries, l)
		}
	}
	if len(countries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendsTimeout)
	defer cancel()
	q := sends.Query{N: countriesShown}
	all, err := s.proxy.Sends(ctx, q, s.proxy.TopSends(q))
	if err != nil {
		return
	}
	for _, l := range countries {
		i := slices.IndexFunc(all, func(one sends.LimitCounts) bool { return one.Route == l.Route && one.Limit == l.Name })
		if i < 0 {
			continue // another configuration is served meanwhile
		}
		for _, k := range all[i].Keys {
			labels := []string{l.Route, l.Name, strings.TrimPrefix(k.Masked, l.Key.Name+"=")}
			for _, r := range k.Rates {
				window := append(slices.Clone(labels), r.Window)
				to <- prometheus.MustNewConstMetric(s.open, prometheus.GaugeValue, float64(r.Open), window...)
				to <- prometheus.MustNewConstMetric(s.allowed, prometheus.GaugeValue, float64(r.Allowed), window...)
			}
			if k.Sent > 0 {
				to <- prometheus.MustNewConstMetric(s.ratio, prometheus.GaugeValue, k.Ratio, labels...)
			}
		}
	}
}

// countForwarded counts the result of a request that was to be forwarded.
func (m *proxyMetrics) countForwarded(x *exchange) {
	if x.route.pool == nil {
		return
	}
	t := upstreamResult{x.outcome.result.Target, x.outcome.result.Kind}
	trips, ok := x.route.metrics.upstreamRequests.Get(t)
	if !ok {
		trips = x.route.metrics.upstreamRequests.Keep(t, m.upstreamRequests.WithLabelValues(x.route.pool.Name(), t.target, upstreamOutcome(t.kind)))
	}
	trips.Inc(x.stripe)
	if x.outcome.result.Retries > 0 {
		m.retries.WithLabelValues(x.route.pool.Name()).Add(float64(x.outcome.result.Retries))
	}
}

// upstreamOutcome returns the label value for the result of a forwarded request.
func upstreamOutcome(k upstream.ResultKind) string {
	switch k {
	case upstream.OK:
		return "ok"
	case upstream.ConnectFailed:
		return "connect"
	case upstream.ConnectTimeout:
		return "connect_timeout"
	case upstream.Timeout:
		return "timeout"
	case upstream.ClientGone:
		return "client_gone"
	case upstream.BadRequest, upstream.BodyTimeout, upstream.BodyTooLarge, upstream.MaxForwards, upstream.LoopDetected:
		return "bad_request"
	case upstream.BadResponse:
		return "bad_response"
	case upstream.ConnectionReset:
		return "reset"
	case upstream.ResponseTruncated:
		return "cut"
	case upstream.NoTarget:
		return "no_target"
	case upstream.QueueFull:
		return "busy"
	}
	return "other"
}
