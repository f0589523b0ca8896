package proxy

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// The results of a decision, as label values.
const (
	allowed       = "allowed"
	refused       = "refused"
	shadowRefused = "shadow_refused"
	unavailable   = "unavailable"
)

// limitMetrics are the metrics of limits and of their store.
type limitMetrics struct {
	stripes         *stripe.Numbers
	decisions       *metrics.Counters
	store           *metrics.Histograms
	storeErrors     *prometheus.CounterVec
	fallbacks       *prometheus.CounterVec
	refunds         *prometheus.CounterVec
	bans            *prometheus.CounterVec
	resets          *prometheus.CounterVec
	returns         *prometheus.CounterVec
	shadowWrong     *prometheus.CounterVec
	sends           *prometheus.CounterVec
	waits           *prometheus.CounterVec
	challenges      *prometheus.CounterVec
	waiting         *prometheus.GaugeVec
	spend           *prometheus.CounterVec
	budgetRemaining *prometheus.GaugeVec

	storeSeconds metrics.Cache[string, *metrics.Histogram] // by operation
}

// newLimitMetrics registers the metrics, whose histograms have the given cells.
func newLimitMetrics(r prometheus.Registerer, stripes *stripe.Numbers, cells *metrics.Buckets) *limitMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_" + name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	m := &limitMetrics{
		stripes:     stripes,
		decisions:   metrics.NewCounters(stripes.Count(), "decisions_total", "Decisions of limits, by result. The route of a limit of several routes is empty.", "route", "limit", "result"),
		store:       metrics.NewHistograms(cells, "store_duration_seconds", "Duration of calls to a shared store.", "operation"),
		storeErrors: counter("store_errors_total", "Calls to a shared store that failed or timed out.", "operation"),
		fallbacks:   counter("store_fallback_total", "Requests decided without the store, by the policy that decided.", "policy"),
		refunds:     counter("refunds_total", "Requests whose permits a limit has refunded because of their outcome.", "route", "limit"),
		bans:        counter("bans_total", "Keys that a limit has banned because it refused them too often.", "route", "limit"),
		resets:      counter("cooldown_resets_total", "Cooldowns reset by a response on another route.", "route", "limit"),
		returns:     counter("returns_total", "Requests whose permits a limit has returned because of a response on another route.", "route", "limit"),
		shadowWrong: counter("shadow_wrong_total", "Requests that a limit in shadow mode would have refused, and whose permits a response on another route would have returned later.", "route", "limit"),
		sends:       counter("sends_total", "Requests that a limit with return_on counted on this node, and of these the ones that were refunded, and whose permits a response returned (verified).", "route", "limit", "outcome"),
		waits:       counter("waits_total", "Requests that waited for a permit, or could not because too many were waiting, by result.", "route", "limit", "result"),
		challenges:  counter("challenges_total", "Requests over the rate of a limit with step_up, by result: a challenge was issued, its token was invalid or used, or it passed.", "route", "limit", "result"),
		spend:       counter("spend_total", "Prices of the requests that were counted by a budget and not refunded, in the unit of the prices.", "route", "limit", "unit"),
	}
	m.waiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_waiting_requests", Help: "Requests waiting for a permit."}, []string{"route", "limit"})
	m.budgetRemaining = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_budget_remaining_ratio", Help: "What is left of a budget with key: global, at its last decision."}, []string{"route", "limit", "window"})
	r.MustRegister(m.decisions, m.store, m.waiting, m.budgetRemaining)
	for _, policy := range []config.OnStoreFailure{config.Local, config.Allow, config.Deny} {
		m.fallbacks.WithLabelValues(string(policy)) // alerts use it; see newMetrics of package proxy
	}
	return m
}

// A decisionResult is the result of a decision about a limit.
type decisionResult uint8

const (
	decisionAllowed decisionResult = iota
	decisionRefused
	decisionShadowRefused
	decisionUnavailable
	numDecisionResults
)

// String returns the label value.
func (r decisionResult) String() string {
	return [...]string{allowed, refused, shadowRefused, unavailable}[r]
}

// countDecisions counts the decision of each limit. A limit with several windows is counted once, and a
// limit without a decision is not counted.
func (m *limitMetrics) countDecisions(own int, set claimSet, outcomes []limiter.Outcome) {
	for i := 0; i < len(set); {
		of, to, said := set.decidedAt(i, outcomes)
		switch i = to; {
		case !said.Allowed:
			m.decision(of, of.refusal()).Inc(own)
		case !said.Unknown:
			m.decision(of, decisionAllowed).Inc(own)
		}
	}
}

// decision returns the counter of a result of a limit.
func (m *limitMetrics) decision(of *limit, result decisionResult) *metrics.Counter {
	known := &of.decisions[result]
	if c := known.Load(); c != nil {
		return c
	}
	c := m.decisions.WithLabelValues(of.Route, of.Name, result.String())
	known.Store(c)
	return c
}

// measure makes a call to the store and records it.
func (m *limitMetrics) measure(operation string, call func() error) error {
	began := time.Now()
	err := call()
	m.observeStoreCall(operation, time.Since(began), err)
	return err
}

// observeStoreCall records a call to the store.
func (m *limitMetrics) observeStoreCall(operation string, duration time.Duration, err error) {
	o, ok := m.storeSeconds.Get(operation)
	if !ok {
		o = m.storeSeconds.Keep(operation, m.store.Of(operation))
	}
	o.Observe(m.stripes.Own(), duration)
	if err != nil {
		m.storeErrors.WithLabelValues(operation).Inc()
	}
}

// countFallback counts a request that was decided without the store.
func (m *limitMetrics) countFallback(q *admission) {
	m.fallbacks.WithLabelValues(q.fallback).Inc()
}

// countUnavailable counts a limit that could not be evaluated.
func (m *limitMetrics) countUnavailable(q *admission, of *limit) {
	m.decision(of, decisionUnavailable).Inc(q.stripe)
}

// countSteps counts the result of challenges.
func (m *limitMetrics) countSteps(s *stepsUp) {
	if s.by != nil {
		m.challenges.WithLabelValues(s.by.Route, s.by.Name, s.result.String()).Inc()
		return
	}
	for _, l := range s.limits {
		if s.result == decisions.ChallengePassed {
			m.challenges.WithLabelValues(l.Route, l.Name, s.result.String()).Inc()
		}
	}
}

// countSpending counts what a request has cost that was not refunded, once for each limit, and shows what is
// left of budgets that all requests share.
func (m *limitMetrics) countSpending(a *admission) {
	for i := range a.takenPermits {
		t := &a.takenPermits[i]
		for j, to := 0, 0; j < len(t.claims); j = to {
			var of *limit
			of, to = t.claims.limitAt(j)
			if of.Prices != nil && (t.refunded == nil || !t.refunded[j]) {
				m.spend.WithLabelValues(of.Route, of.Name, of.Prices.Unit).Add(of.Prices.Float(t.claims[j].Cost))
			}
		}
	}
	for i := range min(len(a.decision.Outcomes), len(a.claims)) {
		w, o := a.claims.window(i), a.decision.Outcomes[i]
		if w.of.Prices != nil && w.of.Key.From.Source.IsConstant() && a.decided && !o.Unknown {
			m.budgetRemaining.WithLabelValues(w.of.Route, w.of.Name, limiter.WindowName(w.Rate.Window)).Set(float64(o.Remaining) / float64(w.Rate.Count))
		}
	}
}

const (
	// nearFrom is the minimum count of a rate for which alerts are sent. Using up a smaller one is
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

// alerts is the configuration of alerts.
type alerts config.Alerts

// near returns the number of remaining permits of a rate below which a key has used most of it; 0
// if there are no alerts. There are none for limits in shadow mode.
func (a alerts) near(rate limiter.Rate, mode config.Mode) int64 {
	if a.Webhook == "" || len(a.Used) == 0 || rate.Count < nearFrom || mode != config.Enforce {
		return 0
	}
	used := (rate.Count*a.Used[0] + 99) / 100
	return rate.Count - used + 1
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
func (n *nearLimits) record(q *admission) {
	for i := range q.decision.Outcomes {
		if w := q.claims.window(i); q.decision.Outcomes[i].Remaining < w.near && !q.decision.Outcomes[i].Unknown {
			n.update(q, i, w)
		}
	}
}

func (n *nearLimits) update(q *admission, i int, w *window) {
	if !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	used := w.Rate.Count - max(q.decision.Outcomes[i].Remaining, 0)
	known, found := n.byWindow[w.Name]
	if used <= known.Used || !found && len(n.byWindow) >= maxNear {
		return
	}
	near := Near{Route: w.of.Route, Limit: w.of.Name, Window: limiter.WindowName(w.Rate.Window), Used: used, Of: w.Rate.Count}
	near.Key, near.Masked = q.keyNamer.logKey(q.claims[i].Key)
	if p := w.of.Prices; p != nil {
		near.Money = p.Text(used) + " of " + p.Text(w.Rate.Count)
	}
	n.byWindow[w.Name] = near
}

// drain returns the recorded keys and removes them.
func (n *nearLimits) drain() []Near {
	n.mu.Lock()
	most := n.byWindow
	n.byWindow = map[string]Near{}
	n.mu.Unlock()
	all := make([]Near, 0, len(most))
	for _, near := range most {
		all = append(all, near)
	}
	return all
}
