package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/usage"
)

var (
	// ErrCost reports that the cost of a request is not valid.
	ErrCost = errors.New("cost not acceptable")
	// ErrPrice reports that the price of a request alone exceeds a budget.
	ErrPrice = errors.New("the price exceeds the budget")
)

// countsRequests reports whether no request has a price under l.
func (l *Limit) countsRequests() bool { return l.Prices == nil }

// Charges returns what determines the cost of a request: what it says, and its price. Nil is 1.
func (l *Limit) Charges() (said *config.Cost, prices *config.Prices) { return l.Cost, l.Prices }

// Price returns what a request with this key costs by p; the dearest price if found is false.
func (k *Key) Price(p *config.Prices) (price key.Price, found bool) {
	if p.ByModel() {
		return p.Table.Of(k.Text, "")
	}
	return p.Table.Of(k.Number.E164, k.Number.Type)
}

// Weights returns what tokens cost under l, for a budget at this price, and the most that a request reserves.
func (l *Limit) Weights(price key.Price) (w usage.Weights, most int64) {
	if l.Prices == nil {
		return l.Cost.Weights, l.Cost.Max
	}
	w = usage.Weights(price.Tokens)
	most = usage.Output.Of(l.Cost.Max).Cost(usage.Weights{Output: max(w.Input, w.Cached, w.Output)})
	return w, most
}

// AmountText returns how numbers of permits of l are shown; nil if they are plain numbers.
func (l *Limit) AmountText() func(n int64) string {
	if l.Prices == nil {
		return nil
	}
	return l.Prices.Text
}

// checkCost returns ErrCost, or ErrPrice of a budget, if a request of this cost could never be allowed.
func (l *Limit) checkCost(windows []*Window, cost int64) error {
	for _, w := range windows {
		if cost > w.Capacity() {
			if l.Prices != nil {
				return fmt.Errorf("%s: %w", l.Name, ErrPrice)
			}
			return fmt.Errorf("%s: %w: %d exceeds the maximum of %d", l.Name, ErrCost, cost, w.Capacity())
		}
	}
	return nil
}

// Exceeds returns the error of descriptors with so many hits for one key.
func Exceeds(w *Window, hits int64) error {
	return fmt.Errorf("%s: %w: %d hits exceed the maximum", w.Of.Name, ErrCost, hits)
}

// SetCost sets the cost of claims. It returns the window of a claim that no unused key has room for, or nil.
func (s ClaimSet) SetCost(hits int64) *Window {
	for i := range s {
		w := s.Window(i)
		s[i].Source = 0 // nobody knows the client
		if hits == 1 || w.Algorithm.HasValues() {
			continue
		}
		if s[i].Cost = hits; hits > w.Capacity() {
			return w
		}
	}
	return nil
}

// CountSpending counts what a request has cost that was not refunded, once for each limit, and shows what is
// left of budgets that all requests share.
func (m *Metrics) CountSpending(a *Admission) {
	for i := range a.TakenPermits {
		t := &a.TakenPermits[i]
		for of := range t.Claims.Decided(nil) {
			if of.Prices != nil && (t.refunded == nil || !t.refunded[of.From]) {
				m.Spend.WithLabelValues(of.Route, of.Name, of.Prices.Unit).Add(of.Prices.Float(t.Claims[of.From].Cost))
			}
		}
	}
	for i := range min(len(a.Decision.Outcomes), len(a.Claims)) {
		w, o := a.Claims.Window(i), &a.Decision.Outcomes[i]
		if w.Of.Prices != nil && w.Of.Key.From.Source.IsConstant() && a.Decided && !o.Unknown {
			m.BudgetRemaining.WithLabelValues(w.Of.Route, w.Of.Name, limiter.WindowName(w.Rate.Window)).Set(float64(o.Remaining) / float64(w.Rate.Count))
		}
	}
}

// A Used is what a response has said that its request has used.
type Used struct {
	usage.Report
	Unsettled string                                       // why not all of it is known: the response is an error, encoded or cut, or does not say it; "" if it is
	IsCut     bool                                         // the response has not ended: at least this was used
	Estimate  usage.Report                                 // of a response that was cut, by what has passed; not Known if it counts as it was reserved
	Weights   func(l *Limit) (w usage.Weights, most int64) // of its tokens, and the most that is counted
}

// countSettled counts that a limit has reserved a number of permits for a request that has used another one, unless that is as
// many because it is not known.
func (m *Metrics) countSettled(of *Limit, reserved, used int64, u *Used) {
	if used == reserved && u.Unsettled != "" && !u.Estimate.Known {
		m.Unsettled.WithLabelValues(of.Route, of.Name, u.Unsettled).Inc()
		return
	}
	for result, n := range map[string]int64{"reserved": reserved, "refunded": reserved - used, "charged": used - reserved} {
		m.permits.WithLabelValues(of.Route, of.Name, result).Add(float64(max(n, 0)))
	}
	m.ratio.WithLabelValues(of.Route, of.Name).Observe(float64(used) / float64(reserved))
}

// EachResult calls do for each count of a limit: its decisions; the permits that were reserved, of these refunded, and
// charged besides; and the requests for which they were, each once: they are settled, or not, by the reason.
func (m *Metrics) EachResult(do func(label map[string]string, result string, n int64)) {
	for _, counts := range []prometheus.Collector{m.Decisions, m.permits, m.Unsettled, m.ratio} {
		metrics.Each(counts, func(label map[string]string, one *dto.Metric) {
			do(label, cmp.Or(label["result"], label["reason"], "settled"), int64(one.GetCounter().GetValue())+int64(one.GetHistogram().GetSampleCount()))
		})
	}
}

// reserves reports whether what its requests cost is known afterwards.
func (l *Limit) reserves() bool { return l.Cost.IsReserved() }

// CostText says for explain what a request costs under l that is asked for this cost: otherwise, unless the response says it.
func (l *Limit) CostText(cost int64, otherwise string) string {
	if !l.reserves() {
		return otherwise
	}
	text := fmt.Sprint(cost)
	if amount := l.AmountText(); amount != nil {
		text = amount(cost)
	}
	if text += ", reserved until the response says what was used"; otherwise != "" {
		text += "; " + otherwise
	}
	return text
}

// cost returns what u costs under l, for which so much was reserved.
func (u *Used) cost(l *Limit, reserved int64) int64 {
	w, most := u.Weights(l)
	if l.Cost.Unbounded {
		most = limiter.MaxCount
	}
	used := min(u.Report.Cost(w), most)
	switch {
	case u.Estimate.Known:
		used = max(used, min(u.Estimate.Cost(w), reserved))
	case !u.Known: // of which a part may be known
		used = reserved
	case u.IsCut:
		used = max(used, reserved)
	}
	return used
}

// settleUsage makes what limits have reserved for q what it has used, unless rule refunds it: it refunds what is too much,
// and charges what is missing, also beyond what is left, up to max_cost. What is not known stays reserved.
func (a *Admitter) settleUsage(ctx context.Context, q *Admission, rule refundRule, u *Used) {
	var last *Limit
	a.settleCost(ctx, q, func(claim *limiter.Claim, of *Limit) int64 {
		if !of.reserves() || rule.applies(of) {
			return 0
		}
		used := u.cost(of, claim.Cost)
		if of.IsShared() { // Java programs know no debt
			used = min(used, claim.Cost)
		}
		if of != last {
			a.metrics.countSettled(of, claim.Cost, used, u)
			q.Settled.Used += fmt.Sprintf("%s=%d/%d ", of.Name, used, claim.Cost)
			last = of
		}
		return claim.Cost - used
	})
	if q.Settled.Used = strings.TrimSpace(q.Settled.Used + u.String()); u.Unsettled != "" && !u.Known && !u.Estimate.Known {
		q.Settled.Used = u.Unsettled
	}
}
