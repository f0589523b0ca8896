package proxy

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// proxyMetrics are the metrics of one proxy. Label values are names from the configuration and small
// fixed sets of words, never data sent by clients.
type proxyMetrics struct {
	*limit.Metrics
	requests         *metrics.Counters
	outcomes         *metrics.Counters
	durations        [len(spans{})]*metrics.Histograms
	repeats          *prometheus.CounterVec
	upstreamRequests *metrics.Counters
	retries          *prometheus.CounterVec
	listMatches      *prometheus.CounterVec
	newKeys          *prometheus.CounterVec
	unknownPlans     *prometheus.CounterVec
	reloads          *prometheus.CounterVec
	generation       prometheus.Gauge
	unloggedResets   prometheus.Counter

	unrouted routeMetrics // of requests without a route
}

func newMetrics(r prometheus.Registerer, stripes *stripe.Numbers) *proxyMetrics {
	counter := metrics.Registry{Registerer: r}.Counter
	perRequest := func(name, help string, labels ...string) *metrics.Counters {
		c := metrics.NewCounters(stripes.Count(), name, help, labels...)
		r.MustRegister(c)
		return c
	}
	cells := metrics.NewBuckets(stripes.Count())
	m := &proxyMetrics{
		Metrics:          limit.NewMetrics(r, stripes, cells),
		requests:         perRequest("requests_total", "Requests answered, by route and status.", "route", "code"),
		outcomes:         perRequest("request_outcomes_total", "Requests answered, by what limits decided about each: a request that several limits refused counts once.", "route", "outcome"),
		listMatches:      counter("list_matches_total", "Requests whose key was on a list, by the list that decided.", "route", "list", "action"),
		repeats:          counter("repeats_total", "Repeats of idempotent requests, which are not counted by limits.", "route"),
		upstreamRequests: perRequest("upstream_requests_total", "Requests to upstreams, by last target and result.", "upstream", "target", "result"),
		retries:          counter("upstream_retries_total", "Retries on another target.", "upstream"),
		reloads:          counter("reloads_total", "Configuration reloads, by result.", "result"),
		generation:       promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: "weir_config_generation", Help: "Generation of the configuration that is served."}),
	}
	m.newKeys = counter("new_keys_total", "Requests with keys not seen recently, by result.", "route", "result")
	m.unknownPlans = counter("plan_unknown_total", "Requests to which the own rates of a limit with plans applied, because the key had no plan or one that the limit does not have.", "route", "limit", "reason")
	m.unloggedResets = promauto.With(r).NewCounter(prometheus.CounterOpts{Name: "weir_log_resets_unlogged_total", Help: "HTTP/2 requests reset by their clients that were left out of the log."})
	for i, of := range [len(spans{})][2]string{
		{"request", "Time from the header of a request until its response was written."},
		{"own", "Time spent in Weir itself: without the upstream and without waiting for a permit."},
		{"upstream", "Time from the start of forwarding until the response was relayed or forwarding failed."},
		{"wait", "Time that requests waited for a permit, of those that waited."},
	} {
		m.durations[i] = metrics.NewHistograms(cells, of[0]+"_duration_seconds", of[1], "route")
		r.MustRegister(m.durations[i])
	}
	// Prometheus sees no increase if a counter first appears with value 1, so counters that alerts
	// use start at 0.
	for _, result := range []string{"ok", "unchanged", "refused"} {
		m.reloads.WithLabelValues(result)
	}
	return m
}

// countResponse counts a response and returns the label value of its route.
func (m *proxyMetrics) countResponse(x *exchange) (name string) {
	name, f := "none", &m.unrouted
	if x.route != nil {
		name, f = x.route.Name, x.route.metrics
	}
	f.requests.Of(x.response.status, func() *metrics.Counter {
		return m.requests.WithLabelValues(name, strconv.Itoa(x.response.status))
	}).Inc(x.Stripe)
	m.countOutcome(x, name, f)
	m.observeDurations(x, name, f)
	return name
}

// countOutcome counts x by its outcome. A request that limits with on_store_failure: allow or deny decided
// without the store is unavailable.
func (m *proxyMetrics) countOutcome(x *exchange, name string, f *routeMetrics) {
	outcome := outcomeOf(x)
	label := outcome.String()
	if (x.Fallback == string(config.Allow) || x.Fallback == string(config.Deny)) && outcome != decisions.RefusedByLimits {
		label = limit.Unavailable
	}
	f.outcomes.Of(label, func() *metrics.Counter { return m.outcomes.WithLabelValues(name, label) }).Inc(x.Stripe)
}

// observeDurations records the duration of x and its parts.
func (m *proxyMetrics) observeDurations(x *exchange, name string, f *routeMetrics) {
	end := x.began.UnixNano() + int64(x.duration)
	for i, d := range x.spans() {
		if d > 0 || i < alwaysSpent {
			x.observe(f.durations.Of(i, func() *metrics.Histogram { return m.durations[i].Of(name) }), d, end)
		}
	}
}

// observe records the duration d of x, which ended at end, in nanoseconds since 1970. At intervals x
// becomes an exemplar.
func (x *exchange) observe(h *metrics.Histogram, d time.Duration, end int64) {
	if bucket := h.Observe(x.Stripe, d); h.ExemplarDue(bucket, end) || x.isTraced() {
		h.SetExemplar(bucket, metrics.Exemplar{Duration: d, At: x.began.Add(x.duration), TraceID: x.traceID(), RequestID: x.id})
	}
}

func (m *proxyMetrics) countReload(r Report, err error) {
	result := "unchanged"
	switch {
	case err != nil:
		result = "refused"
	case r.Changed:
		result = "ok"
	}
	m.reloads.WithLabelValues(result).Inc()
}

// countUnknownPlans counts the limits with plans whose own rates applied to x.
func (m *proxyMetrics) countUnknownPlans(x *exchange) {
	for _, p := range x.extracted.plans {
		if p.plan != nil {
			continue
		}
		reason := "unknown"
		if p.name == "" {
			reason = "missing"
		}
		m.unknownPlans.WithLabelValues(p.of.Route, p.of.Name, reason).Inc()
	}
}

// routeMetrics are the metrics of one route that are updated by every request. Each is looked up by its
// labels once, because the lookup costs more than the update. The zero value is ready to use. A
// series is created when it is first updated.
type routeMetrics struct {
	requests         metrics.Cache[int, *metrics.Counter]    // by status
	outcomes         metrics.Cache[string, *metrics.Counter] // by label
	durations        metrics.Cache[int, *metrics.Histogram]  // by the index in spans
	upstreamRequests metrics.Cache[upstreamResult, *metrics.Counter]
}

// An upstreamResult is the result of a request that was to be forwarded.
type upstreamResult struct {
	target string
	kind   upstream.ResultKind
}

// A Series identifies a count: the requests of a route by their outcomes, with Limit empty, or what
// one of its limits has counted. A request that two limits refused is one refused request and two
// refusals.
type Series struct {
	Route string `json:"route"` // none: no route matched
	Limit string `json:"limit,omitempty"`
	// Result is allowed, refused, shadow_refused or unavailable (decided without the store). That of
	// a request may also be rejected: not forwarded for another reason than a limit. Limits whose costs are
	// known afterwards also have the results of a view.Settlement.
	Result string `json:"result,omitempty"`
}

// Counts returns the counts since the process started. They are read from the metrics, so serving
// requests has no additional cost.
func (p *Proxy) Counts() map[Series]int64 {
	counts := map[Series]int64{}
	metrics.Each(p.metrics.outcomes, func(label map[string]string, m *dto.Metric) {
		counts[Series{Route: label["route"], Result: label["outcome"]}] += int64(m.GetCounter().GetValue())
	})
	p.metrics.EachResult(func(label map[string]string, result string, n int64) {
		counts[Series{label["route"], label["limit"], result}] += n
	})
	return counts
}

// A Near is a key that has used most of a limit.
type Near = limit.Near

// Near returns, for each limit and window, the key that has used most of it since the last call. It
// returns none if no alerts are configured.
func (p *Proxy) Near() []Near { return p.admitter.NearLimits.Drain() }

// Alerts returns the configuration of alerts of the current generation.
func (p *Proxy) Alerts() config.Alerts { return p.current.Load().config.Alerts }
