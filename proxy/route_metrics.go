package proxy

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// routeMetrics are the metrics of one route that are updated by every request. Each is looked up by its
// labels once, because the lookup costs more than the update. The zero value is ready to use. A
// series is created when it is first updated.
type routeMetrics struct {
	requests         metrics.Cache[int, prometheus.Counter] // by status
	durations        metrics.HistogramRef
	own              metrics.HistogramRef
	upstream         metrics.HistogramRef
	wait             metrics.HistogramRef
	upstreamRequests metrics.Cache[upstreamResult, prometheus.Counter]
}

// A counterRef is a counter that is looked up once.
type counterRef struct {
	cached atomic.Pointer[prometheus.Counter]
}

// An upstreamResult is the result of a request that was to be forwarded.
type upstreamResult struct {
	target string
	kind   upstream.ResultKind
}
