package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

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
	trips.Inc()
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
