package limit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// The results of a decision, as label values.
const (
	Allowed       = "allowed"
	Refused       = "refused"
	ShadowRefused = "shadow_refused"
	Unavailable   = "unavailable"
)

// Metrics are the metrics of limits and of their store.
type Metrics struct {
	stripes     *stripe.Numbers
	Decisions   *metrics.Counters
	store       *metrics.Histograms
	storeErrors *prometheus.CounterVec
	Fallbacks   *prometheus.CounterVec
	Refunds     *prometheus.CounterVec
	Bans        *prometheus.CounterVec
	Resets      *prometheus.CounterVec
	Returns     *prometheus.CounterVec
	ShadowWrong *prometheus.CounterVec
	sends       *prometheus.CounterVec
	Waits       *prometheus.CounterVec
	Challenges  *prometheus.CounterVec
	Waiting     *prometheus.GaugeVec

	// Of budgets, and of costs that are known afterwards.
	Spend           *prometheus.CounterVec
	BudgetRemaining *prometheus.GaugeVec
	permits         *prometheus.CounterVec
	Unsettled       *prometheus.CounterVec
	ratio           *prometheus.HistogramVec

	storeSeconds metrics.Cache[string, *metrics.Histogram] // by operation
}

// NewMetrics registers the metrics, whose histograms have the given cells.
func NewMetrics(r prometheus.Registerer, stripes *stripe.Numbers, cells *metrics.Buckets) *Metrics {
	registry := metrics.Registry{Registerer: r}
	counter := registry.Counter
	m := &Metrics{
		stripes:     stripes,
		Decisions:   metrics.NewCounters(stripes.Count(), "decisions_total", "Decisions of limits, by result. The route of a limit of several routes is empty.", "route", "limit", "result"),
		store:       metrics.NewHistograms(cells, "store_duration_seconds", "Duration of calls to a shared store.", "operation"),
		storeErrors: counter("store_errors_total", "Calls to a shared store that failed or timed out.", "operation"),
		Fallbacks:   counter("store_fallback_total", "Requests decided without the store, by the policy that decided.", "policy"),
		Refunds:     counter("refunds_total", "Requests whose permits a limit has refunded because of their outcome.", "route", "limit"),
		Bans:        counter("bans_total", "Keys that a limit has banned because it refused them too often.", "route", "limit"),
		Resets:      counter("cooldown_resets_total", "Cooldowns reset by a response on another route.", "route", "limit"),
		Returns:     counter("returns_total", "Requests whose permits a limit has returned because of a response on another route.", "route", "limit"),
		ShadowWrong: counter("shadow_wrong_total", "Requests that a limit in shadow mode would have refused, and whose permits a response on another route would have returned later.", "route", "limit"),
		sends:       counter("sends_total", "Requests that a limit with return_on counted on this node, and of these the ones that were refunded, and whose permits a response returned (verified).", "route", "limit", "outcome"),
		Waits:       counter("waits_total", "Requests that waited for a permit, or could not because too many were waiting, by result.", "route", "limit", "result"),
		Challenges:  counter("challenges_total", "Requests over the rate of a limit with step_up, by result: a challenge was issued, its token was invalid or used, or it passed.", "route", "limit", "result"),
		Waiting:     registry.Gauge("waiting_requests", "Requests waiting for a permit.", "route", "limit"),

		Spend:           counter("spend_total", "Prices of the requests that were counted by a budget and not refunded, in the unit of the prices.", "route", "limit", "unit"),
		BudgetRemaining: registry.Gauge("budget_remaining_ratio", "What is left of a budget with key: global, at its last decision.", "route", "limit", "window"),
		permits:         counter("settled_permits_total", "Permits of costs that are known afterwards: reserved, and of these refunded, or charged besides.", "route", "limit", "result"),
		Unsettled:       counter("unsettled_total", "Requests that keep what a limit has reserved for them, by the reason: the response is an error, encoded, or cut, or does not say what was used.", "route", "limit", "reason"),
		ratio: promauto.With(r).NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_settled_ratio", Help: "What a request has used, divided by what was reserved for it.",
			Buckets: []float64{0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.5, 2, 5, 10},
		}, []string{"route", "limit"}),
	}
	r.MustRegister(m.Decisions, m.store)
	for _, policy := range []config.OnStoreFailure{config.Local, config.Allow, config.Deny} {
		m.Fallbacks.WithLabelValues(string(policy)) // alerts use it; see newMetrics of package proxy
	}
	return m
}

// countDecisions counts the decision of each limit. A limit with several windows is counted once, and a
// limit without a decision is not counted.
func (m *Metrics) countDecisions(own int, set ClaimSet, outcomes []limiter.Outcome) {
	for d := range set.Decided(outcomes) {
		switch {
		case !d.Allowed && d.IsShadow():
			m.decision(d.Limit, ShadowRefused).Inc(own)
		case !d.Allowed:
			m.decision(d.Limit, Refused).Inc(own)
		case !d.Unknown:
			m.decision(d.Limit, Allowed).Inc(own)
		}
	}
}

// decision returns the counter of a result of a limit.
func (m *Metrics) decision(of *Limit, result string) *metrics.Counter {
	return of.decisions.Of(result, func() *metrics.Counter { return m.Decisions.WithLabelValues(of.Route, of.Name, result) })
}

// measure makes a call to the store and records it.
func (m *Metrics) measure(operation string, call func() error) error {
	began := time.Now()
	err := call()
	m.observeStoreCall(operation, time.Since(began), err)
	return err
}

// A measured is a shared store whose decisions are recorded: what is decided without a call to it is not among them.
type measured struct {
	limiter.AdminStore
	metrics *Metrics
}

// Take implements limiter.Store.
func (m measured) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return m.metrics.measure("take", func() error { return m.AdminStore.Take(ctx, claims, d) })
}

// observeStoreCall records a call to the store.
func (m *Metrics) observeStoreCall(operation string, duration time.Duration, err error) {
	m.storeSeconds.Of(operation, func() *metrics.Histogram { return m.store.Of(operation) }).Observe(m.stripes.Own(), duration)
	if err != nil {
		m.storeErrors.WithLabelValues(operation).Inc()
	}
}

const (
	// nearFrom is the minimum count of a rate, or of its burst, for which alerts are sent. Using up a smaller one is
	// not unusual.
	nearFrom = 100
	// maxNear is the maximum number of limits in one report.
	maxNear = 50
)

// A Near is a key that has used most of a limit.
type Near struct {
	Route  string `json:"route"`
	Limit  string `json:"limit"`
	Window string `json:"window"`
	Used   int64  `json:"used"`
	Of     int64  `json:"of"`
	Key    string `json:"key"`              // the beginning of the key's hash, as in the log
	Masked string `json:"masked,omitempty"` // of a sensitive key
	Money  string `json:"money,omitempty"`  // of a budget, what is used of it: 320 EUR of 400 EUR
}

// IsNearer reports whether n has used a larger part than other, whose rate may be that of another plan. The zero Near has used nothing.
func (n Near) IsNearer(other Near) bool { return n.Used*max(other.Of, 1) > other.Used*max(n.Of, 1) }

// near returns the number of remaining permits of a rate of l, or of its burst, below which a key has used most of it; 0
// if there are no alerts. There are none for limits in shadow mode.
func (l *Limit) near(rate limiter.Limit) int64 {
	most := rate.Capacity()
	if l.alerts.Webhook == "" || len(l.alerts.Used) == 0 || most < nearFrom || !l.Enforces() {
		return 0
	}
	used := (most*l.alerts.Used[0] + 99) / 100
	return most - used + 1
}

// A nearLimits records, for each window, the key that has used most of it since the last report. It
// never blocks a request: if another request is writing, the update is skipped, and a later request
// makes it.
type nearLimits struct {
	mu       sync.Mutex      // guards what follows
	byWindow map[string]Near // by the window's name
}

func newNearLimits() *nearLimits { return &nearLimits{byWindow: map[string]Near{}} }

// record evaluates a decision of the store.
func (n *nearLimits) record(q *Admission) {
	for i := range q.Decision.Outcomes {
		if w := q.Claims.Window(i); q.Decision.Outcomes[i].Remaining < w.near && !q.Decision.Outcomes[i].Unknown {
			n.update(q, i, w)
		}
	}
}

func (n *nearLimits) update(q *Admission, i int, w *Window) {
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	near := Near{Route: w.Of.Route, Limit: w.Of.Name, Of: w.Capacity()}
	near.Used = near.Of - max(q.Decision.Outcomes[i].Remaining, 0)
	known, found := n.byWindow[w.Name]
	if !near.IsNearer(known) || !found && len(n.byWindow) >= maxNear {
		return
	}
	near.Window = limiter.WindowName(w.Written(w.Rate).Window)
	near.Key, near.Masked = q.KeyNamer.LogKey(q.Claims[i].Key)
	if text := w.Of.AmountText(); text != nil {
		near.Money = text(near.Used) + " of " + text(near.Of)
	}
	n.byWindow[w.Name] = near
}

// Drain returns the recorded keys and removes them.
func (n *nearLimits) Drain() []Near {
	n.mu.Lock()
	most := n.byWindow
	n.byWindow = map[string]Near{}
	n.mu.Unlock()
	return slices.AppendSeq(make([]Near, 0, len(most)), maps.Values(most))
}
