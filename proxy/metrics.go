package proxy

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/stripe"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/view"
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

// registerHealth registers a collector of the health of the targets of the current generation. Targets that
// only an earlier configuration had are not reported.
func registerHealth(r prometheus.Registerer, p *Proxy) {
	desc := prometheus.NewDesc("weir_upstream_healthy", "1 if a target is healthy, 0 if it is unhealthy or ejected.", []string{"upstream", "target"}, nil)
	r.MustRegister(prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
		for from, pool := range p.current.Load().pools {
			targets, _ := pool.TargetStandings()
			for _, s := range targets {
				value := 0.0
				if s.IsPreferred() {
					value = 1
				}
				to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, from.Name, s.Target)
			}
		}
	}))
}

// registerState registers the metrics of the generation, of the bodies that are buffered, and of the keys counted in this
// process: by the store if it is in memory, otherwise by the local fallback.
func registerState(r prometheus.Registerer, p *Proxy) {
	counts := p.admitter.Memory
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_" + name, Help: help}, value))
	}
	gauge("config_generation", "Generation of the configuration that is served.", func() float64 {
		return float64(p.current.Load().number.Load())
	})
	gauge("memory_keys", "Keys counted in this process, with store: memory or while a shared store is unreachable.", func() float64 {
		keys, _ := counts.Keys()
		return float64(keys)
	})
	gauge("memory_key_bytes", "Memory used by the keys of weir_memory_keys.", func() float64 {
		_, bytes := counts.Keys()
		return float64(bytes)
	})
	gauge("buffered_body_bytes", "Memory used by request bodies that are buffered to read a key from them.", func() float64 {
		return float64(p.buffers.InUse())
	})
}

const (
	// countriesShown is the number of countries with metrics of their own, those with most requests on this node.
	countriesShown = 20
	// sendsTimeout bounds the calls to the store by one collection.
	sendsTimeout = time.Second
)

// otherCountries is the label value of all other countries together.
const otherCountries = "other"

// A sendsCollector collects, for limits with return_on, what the store says of all keys, and of those on countries, of the
// countries with most requests. The values of other keys are not fit for labels: there are too many, and they are those of
// persons.
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
		desc("sends_open", "Permits of a limit with return_on that are taken, and neither refunded nor returned, on all nodes: of the countries with most requests on this node, and of all other keys together.", "window"),
		desc("limit_allowed", "Permits of such a limit that may be open now, of the same countries.", "window"),
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
	q, countries := sends.Query{N: countriesShown}, map[[2]string]string{} // the name of the key, by route and limit
	counting := s.proxy.current.Load().countingSends(q)
	if len(counting) == 0 {
		return
	}
	for _, l := range counting {
		if l.Key.Of != nil && l.Key.Part.Kind == key.Country && !l.Key.Sensitive {
			countries[[2]string{l.Route, l.Name}] = l.Key.Name
		}
	}
	top := s.proxy.TopSends(q)
	top.Limits = slices.DeleteFunc(top.Limits, func(l view.TopLimit) bool { return countries[[2]string{l.Route, l.Limit}] == "" })
	ctx, cancel := context.WithTimeout(context.Background(), sendsTimeout)
	defer cancel()
	all, err := s.proxy.Sends(ctx, q, top)
	if err != nil {
		return
	}
	for _, l := range all {
		s.collectLimit(to, l, countries[[2]string{l.Route, l.Limit}])
	}
}

// collectLimit collects the counts of a limit, by country if its key is one of that name. What is left of all keys has
// the country otherCountries, or none.
func (s *sendsCollector) collectLimit(to chan<- prometheus.Metric, l sends.LimitCounts, country string) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{l.Route, l.Limit}, labels...)...)
	}
	rest, others := l.All, ""
	for _, k := range l.Keys {
		name := strings.TrimPrefix(k.Masked, country+"=")
		for _, r := range k.Rates {
			gauge(s.open, float64(r.Open), name, r.Window)
			gauge(s.allowed, float64(r.Allowed), name, r.Window)
		}
		if k.Sent > 0 {
			gauge(s.ratio, k.Ratio, name)
		}
		rest = rest.Without(k.Counts)
	}
	if country != "" {
		others = otherCountries
	}
	gauge(s.open, float64(rest.Open()), others, l.Window)
	if rest.Sent > 0 {
		gauge(s.ratio, rest.Ratio, others)
	}
}

// countForwarded counts the result of a request that was to be forwarded.
func (m *proxyMetrics) countForwarded(x *exchange) {
	if x.route.pool == nil {
		return
	}
	t := upstreamResult{x.outcome.result.Target, x.outcome.result.Kind}
	x.route.metrics.upstreamRequests.Of(t, func() *metrics.Counter {
		return m.upstreamRequests.WithLabelValues(x.route.pool.Name(), t.target, upstreamOutcome(t.kind))
	}).Inc(x.Stripe)
	if x.outcome.result.Retries > 0 {
		m.retries.WithLabelValues(x.route.pool.Name()).Add(float64(x.outcome.result.Retries))
	}
}

// upstreamOutcome returns the label value for the result of a forwarded request.
func upstreamOutcome(k upstream.ResultKind) string {
	const badRequest = "bad_request"
	names := [...]string{
		upstream.OK: "ok", upstream.ConnectFailed: "connect", upstream.ConnectTimeout: "connect_timeout", upstream.Timeout: "timeout",
		upstream.ClientGone: "client_gone", upstream.BadRequest: badRequest, upstream.BodyTimeout: badRequest, upstream.BodyTooLarge: badRequest,
		upstream.MaxForwards: badRequest, upstream.LoopDetected: badRequest, upstream.BadResponse: "bad_response",
		upstream.ConnectionReset: "reset", upstream.ResponseTruncated: "cut", upstream.NoTarget: "no_target", upstream.QueueFull: "busy",
	}
	return names[k]
}

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

// DownTargets returns the targets of the current generation that are down on this node: that cannot be connected to,
// or that are unhealthy.
func (p *Proxy) DownTargets() map[TargetName]view.TargetState {
	down := map[TargetName]view.TargetState{}
	for from, pool := range p.current.Load().pools {
		standings, _ := pool.TargetStandings()
		for _, s := range standings {
			if s.FailedConnects > 0 || s.State == view.Unhealthy {
				down[TargetName{from.Name, s.Target}] = s.TargetState
			}
		}
	}
	return down
}

// forwardResults returns the number of forwarded requests by result, and the number of retries by
// upstream.
func (m *proxyMetrics) forwardResults() (results map[TargetName]map[string]int64, retried map[string]int64) {
	results, retried = map[TargetName]map[string]int64{}, map[string]int64{}
	metrics.Each(m.upstreamRequests, func(label map[string]string, m *dto.Metric) {
		s := TargetName{label["upstream"], label["target"]}
		if results[s] == nil {
			results[s] = map[string]int64{}
		}
		results[s][label["result"]] += int64(m.GetCounter().GetValue())
	})
	metrics.Each(m.retries, func(label map[string]string, m *dto.Metric) {
		retried[label["upstream"]] += int64(m.GetCounter().GetValue())
	})
	return results, retried
}

func targetStandings(pool *upstream.Pool, results map[TargetName]map[string]int64) (all []view.TargetStanding, waiting int) {
	failures := []string{"connect", "connect_timeout", "timeout", "bad_response", "reset", "cut", "other"} // of the target, or of the connection to it
	all, waiting = pool.TargetStandings()
	for i := range all {
		s := &all[i]
		s.Results = map[string]int64{}
		for result, n := range results[TargetName{pool.Name(), s.Target}] {
			s.Results[result] = n
			s.Requests += n
			if slices.Contains(failures, result) {
				s.Errors += n
			}
		}
	}
	return all, waiting
}
