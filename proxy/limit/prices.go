package limit

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/usage"
)

var (
	// ErrCost reports that the cost of a request is not valid.
	ErrCost = errors.New("cost not acceptable")
	// ErrPrice reports that the price of a request alone exceeds a budget.
	ErrPrice = errors.New("the price exceeds the budget")
)

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

// spending has the metrics of budgets.
type spending struct {
	Spend           *prometheus.CounterVec
	BudgetRemaining *prometheus.GaugeVec
}

// CountSpending counts what a request has cost that was not refunded, once for each limit, and shows what is
// left of budgets that all requests share.
func (s *spending) CountSpending(a *Admission) {
	for i := range a.TakenPermits {
		t := &a.TakenPermits[i]
		for of := range t.Claims.Decided(nil) {
			if of.Prices != nil && (t.refunded == nil || !t.refunded[of.From]) {
				s.Spend.WithLabelValues(of.Route, of.Name, of.Prices.Unit).Add(of.Prices.Float(t.Claims[of.From].Cost))
			}
		}
	}
	for i := range min(len(a.Decision.Outcomes), len(a.Claims)) {
		w, o := a.Claims.Window(i), &a.Decision.Outcomes[i]
		if w.Of.Prices != nil && w.Of.Key.From.Source.IsConstant() && a.Decided && !o.Unknown {
			s.BudgetRemaining.WithLabelValues(w.Of.Route, w.Of.Name, limiter.WindowName(w.Rate.Window)).Set(float64(o.Remaining) / float64(w.Rate.Count))
		}
	}
}
