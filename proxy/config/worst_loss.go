package config

import (
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A WorstLoss is the most that somebody who enters no code can spend on a route in a day, while nobody
// else enters one there: in each country what its limits on unused codes grant, at the dearest price of the calling
// code, or the budget of the country if it is smaller.
type WorstLoss struct {
	Route  string
	Limit  *Limit // on unused codes, by country
	Prices *Prices
	// Countries is the number of countries that a list with action only, or overrides, names, and Amount the sum over
	// them. Other is the amount of each of the Others, other countries; 0 if a list has all that are served.
	Countries int
	Amount    int64
	Other     int64
	Others    int
}

// WorstLosses returns the worst loss of each route with prices and a limit on unused codes by country.
func (c *Config) WorstLosses() (all []WorstLoss) {
	for _, r := range c.Routes {
		if loss, ok := r.worstLoss(c.Privacy); ok {
			all = append(all, loss)
		}
	}
	return all
}

// Total returns the sum over all countries.
func (w *WorstLoss) Total() int64 { return w.Amount + w.Other*int64(w.Others) }

// String describes the loss: "84 EUR a day in 10 countries".
func (w *WorstLoss) String() string {
	switch {
	case w.Others == 0:
		return fmt.Sprintf("%s a day in %s", w.Prices.Text(w.Amount), countries(w.Countries))
	case w.Countries == 0:
		return fmt.Sprintf("%s a day in each country", w.Prices.Text(w.Other))
	}
	return fmt.Sprintf("%s a day in %s, and %s in each other country", w.Prices.Text(w.Amount), countries(w.Countries), w.Prices.Text(w.Other))
}

func countries(n int) string {
	if n == 1 {
		return "1 country"
	}
	return fmt.Sprintf("%d countries", n)
}

// worstLoss returns the worst loss of r. ok is false if nothing bounds it by country, or it has no prices.
func (r *Route) worstLoss(privacy Privacy) (loss WorstLoss, ok bool) {
	l := lossOf{privacy: privacy, multiple: 1, loss: WorstLoss{Route: r.Name}}
	for _, limit := range r.Limits {
		switch {
		case limit.Mode == Off || limit.Key == nil:
		case limit.Prices != nil && l.loss.Prices == nil && limit.Prices.Table != nil:
			l.loss.Prices = limit.Prices
			if limit.Cost != nil {
				l.multiple = limit.Cost.Max
			}
		}
		switch {
		case limit.Mode == Off || !isCountry(limit.Key):
		case limit.Prices != nil:
			l.budgets = append(l.budgets, limit)
		case limit.Return != nil:
			l.floors = append(l.floors, limit)
		}
	}
	if l.loss.Prices == nil || len(l.floors) == 0 {
		return loss, false
	}
	l.loss.Limit = l.floors[0]
	l.sum(r.Lists)
	return l.loss, true
}

// isCountry reports whether the values of s are countries.
func isCountry(s *key.Spec) bool { return s != nil && s.Of != nil && s.Part.Kind == key.Country }

// lossOf computes a WorstLoss.
type lossOf struct {
	privacy         Privacy
	floors, budgets []*Limit // by country
	multiple        int64    // of a price that one request can cost
	loss            WorstLoss
}

// sum adds the countries that are served: those of lists with action only, or else all.
func (l *lossOf) sum(lists []*List) {
	only := false
	for _, list := range lists {
		only = only || list.Action == OnlyListed && isCountry(list.Key) && list.Members != nil
	}
	for country, code := range key.CallingCodes() {
		switch {
		case only && l.isServed(lists, country), !only && l.isNamed(country):
			l.loss.Countries++
			l.loss.Amount += l.of(country, code)
		case !only:
			l.loss.Others++
		}
	}
	if !only {
		l.loss.Other = l.of("", "")
	}
}

// isServed reports whether all lists with action only have a country.
func (l *lossOf) isServed(lists []*List, country string) bool {
	for _, list := range lists {
		if list.Action != OnlyListed || !isCountry(list.Key) || list.Members == nil {
			continue
		}
		var v key.Value
		if _, err := list.Key.Read(key.Input{Texts: map[string]string{list.Key.Name: country}}, &v); err != nil || !list.Members.Has(&v) {
			return false
		}
	}
	return true
}

// isNamed reports whether a limit has rates of its own for a country.
func (l *lossOf) isNamed(country string) bool {
	for _, limit := range append(l.floors[:len(l.floors):len(l.floors)], l.budgets...) {
		if _, found := limit.Overrides[l.keyOf(limit, country)]; found {
			return true
		}
	}
	return false
}

// of returns the worst loss in a country with a calling code; with an empty one, in a country of which nothing is known.
func (l *lossOf) of(country, code string) int64 {
	price := l.loss.Prices.Table.Dearest().Amount
	if code != "" {
		price = l.loss.Prices.Table.DearestIn(code)
	}
	requests, amount := int64(limiter.MaxCount), int64(limiter.MaxCount)
	for _, limit := range l.floors {
		requests = min(requests, mostInDay(l.rates(limit, country)))
	}
	for _, limit := range l.budgets {
		amount = min(amount, mostInDay(l.rates(limit, country)))
	}
	return min(requests*price*l.multiple, amount)
}

// rates returns the rates of a limit for a country.
func (l *lossOf) rates(limit *Limit, country string) []limiter.Rate {
	if own, found := limit.Overrides[l.keyOf(limit, country)]; found {
		return own
	}
	return limit.Rates
}

// keyOf returns the key of a country under a limit.
func (l *lossOf) keyOf(limit *Limit, country string) limiter.Key {
	var v key.Value
	if _, err := limit.Key.Read(key.Input{Texts: map[string]string{limit.Key.Name: country}}, &v); err != nil {
		return limiter.Key{}
	}
	return l.privacy.Hash(v.Parts)
}

// mostInDay returns how much all of rates grant in any 24 hours.
func mostInDay(rates []limiter.Rate) int64 {
	most := int64(limiter.MaxCount)
	for _, r := range rates {
		windows := (24*time.Hour + r.Window - 1) / r.Window
		most = min(most, r.Count*int64(max(1, windows)))
	}
	return most
}

// warnLevers warns of budgets for all requests that somebody who enters no code can spend, so that everybody is
// refused.
func (r *routes) warnLevers(made []*Route) {
	for _, c := range r.compiled {
		limit := c.limit
		if limit.Mode == Off || limit.Prices == nil || limit.Prices.Table == nil || limit.Key == nil || !limit.Key.From.Source.IsConstant() || len(limit.Rates) == 0 {
			continue
		}
		all, routes := WorstLoss{Prices: limit.Prices}, 0
		for _, route := range made {
			if loss, ok := route.worstLoss(r.literals.privacy); ok && hasLimit(route, limit) {
				all.Limit, all.Countries, all.Others = loss.Limit, max(all.Countries, loss.Countries), max(all.Others, loss.Others)
				all.Amount += loss.Amount
				all.Other += loss.Other
				routes++
			}
		}
		budget := mostInDay(limit.Rates)
		if routes == 0 || all.Total() <= budget {
			continue
		}
		what := fmt.Sprintf("somebody who enters no code can spend %s (%s), which is all of %s a day", all.String(), all.Limit.FullName(), limit.Prices.Text(budget))
		instead := fmt.Sprintf("write a budget of at least %s/1d, or smaller budgets by country", key.FormatAmount(all.Total(), limit.Prices.Decimals))
		if all.Others > 0 && all.Other > 0 {
			if budget > all.Amount {
				what += fmt.Sprintf(" from %s on", countries(int((budget-all.Amount+all.Other-1)/all.Other)+all.Countries))
			}
			instead = "name the countries that are served in a list by country with action: only"
		}
		r.Warn(&c.form.Budget, what+": then everybody is refused", instead)
	}
}

// hasLimit reports whether a route has a limit.
func hasLimit(r *Route, limit *Limit) bool {
	for _, l := range r.Limits {
		if l.ID == limit.ID {
			return true
		}
	}
	return false
}
