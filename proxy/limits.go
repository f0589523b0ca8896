package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/sends"
)

// errCost reports that the cost of a request is not valid.
var errCost = errors.New("cost not acceptable")

// errPrice reports that the price of a request alone exceeds a budget.
var errPrice = errors.New("the price exceeds the budget")

// checkCost returns errCost, or errPrice of a budget, if a request of this cost could never be allowed.
func (l *limit) checkCost(windows []*window, cost int64) error {
	for _, w := range windows {
		if cost > w.Capacity() {
			if l.Prices != nil {
				return fmt.Errorf("%s: %w", l.Name, errPrice)
			}
			return fmt.Errorf("%s: %w: %d exceeds the maximum", l.Cost.From, errCost, cost)
		}
	}
	return nil
}

// redissonName returns the name of the Redisson limiter that counts a key.
func (l *limit) redissonName(k *extractedKey) (string, error) {
	name := strings.ReplaceAll(l.RedissonName, "{key}", k.text)
	if l.hasKeyName && limiter.CheckRedissonKey(k.text) != nil || limiter.CheckRedissonName(name) != nil {
		return "", fmt.Errorf("%s: %w: it cannot be part of the name of a limiter", l.Key.From, key.ErrInvalid)
	}
	return name, nil
}

// A limitRoute is what a route has of limits. It is immutable, except for the counters of its limits.
type limitRoute struct {
	*config.Route
	limits         []*limit // the limits that are not off
	windows        []*window
	cooldownResets []cooldownReset // cooldowns of other routes that responses of this route reset
	permitReturns  []permitReturn  // permits of other routes that responses of this route return
	tokenFields    []string        // fields with tokens of challenges, which are not forwarded
	idempotency    *idempotency    // nil if repeats are counted
	waits          bool            // some limit lets requests wait for a permit
	settlesHead    bool            // the head of a response may refund or return permits, or reset cooldowns
	settles        bool            // some limit may refund permits of a request that was forwarded, whatever RefundOn says
	hasLocalLimit  bool            // some limit uses this node's share while the store is unreachable
	canFallBack    bool            // local, and no limit has on_store_failure: deny
}

// newLimitRoute compiles what a route has of limits.
func newLimitRoute(from *config.Route, a alerts) limitRoute {
	r := limitRoute{Route: from, idempotency: newIdempotency(from.Name, from.Idempotency)}
	for _, l := range from.Limits {
		if l.Mode != config.Off {
			r.addLimit(l, a)
		}
	}
	r.canFallBack = r.hasLocalLimit && !slices.ContainsFunc(r.limits, func(l *limit) bool { return l.Mode == config.Enforce && l.OnStoreFailure == config.Deny })
	return r
}

// A limit is the compiled form of one entry under limits of a route.
type limit struct {
	*config.Limit
	top          *decisions.Counter // counts the most frequent keys; nil if they are not counted
	windows      []*window
	stepUps      []*window                                           // the rates of step_up
	overrides    map[limiter.Key][]*window                           // windows of keys that have rates of their own
	plans        map[string]*plan                                    // by name; nil without plans
	units        []*window                                           // for the rates of descriptors, one for each unit; nil without rate_from
	nearOf       func(limiter.Rate) int64                            // of a rate of a descriptor; see window.near
	hasKeyName   bool                                                // RedissonName contains {key}
	shadowNotes  *limiter.Limit                                      // notes what the limit would have refused, see shadowNotes; nil if it returns nothing, or refuses
	sends        *sends.Counter                                      // counts what becomes of the requests; nil without return_on
	country      *limit                                              // of a limit on ranges of phone numbers: that on their countries, see countryLimit
	refusalLimit limiter.Limit                                       // the limit on the number of refusals before a penalty
	decisions    [numDecisionResults]atomic.Pointer[metrics.Counter] // by result
}

// A window is one rate of a limit, on which claims are made.
type window struct {
	of       *limit
	number   int          // index among the route's windows and its rate limit fields' policies
	rate     string       // name in the log: phone-1h
	policy   string       // name in the rate limit fields: phone
	shown    limiter.Rate // the rate in these fields
	plan     string       // the name of the plan; empty if it is of none
	isOther  bool         // not a rate of all keys of the limit
	isStepUp bool         // a rate of step_up
	isUnit   bool         // its count is that of a descriptor, and the greatest one in the units of its limit
	near     int64        // an alert is due if fewer permits than this remain; 0 for none
	limiter.Limit
}

// allWindows returns the windows of l, also those of keys with rates of their own, but not those of step_up.
func (l *limit) allWindows() []*window {
	all := slices.Clone(l.windows)
	for _, windows := range l.overrides {
		all = append(all, windows...)
	}
	for _, p := range l.plans {
		all = append(all, p.windows...)
	}
	return all
}

// isOf reports whether l is a limit of the route, alone or with others.
func (l *limit) isOf(route string) bool { return l.Route == route || slices.Contains(l.Routes, route) }

// isShown reports whether clients may see l.
func (l *limit) isShown() bool { return l.Expose && l.Mode == config.Enforce }

// refusal returns the result of a refusal by l.
func (l *limit) refusal() decisionResult {
	if l.Mode == config.Shadow {
		return decisionShadowRefused
	}
	return decisionRefused
}

// addLimit adds a limit.
func (r *limitRoute) addLimit(from *config.Limit, alerts alerts) {
	l := &limit{Limit: from, hasKeyName: strings.Contains(from.RedissonName, "{key}")}
	r.limits = append(r.limits, l)
	r.waits = r.waits || l.Wait > 0 && l.Mode == config.Enforce
	r.hasLocalLimit = r.hasLocalLimit || l.Mode == config.Enforce && l.OnStoreFailure == config.Local
	r.settles = r.settles || l.Algorithm.HasLeases() || l.Count != nil
	r.settlesHead = r.settlesHead || l.Count != nil || !r.RefundOn.Status.Empty()
	l.refusalLimit, l.shadowNotes = refusalLimit(from), shadowNotes(from)
	l.sends = newSends(from, l.shadowNotes)
	adder := windowAdder{route: r, limit: l, alerts: alerts}
	add := func(rates []limiter.Rate) []*window { return adder.add(rates, "", l.countedLimit()) }
	l.windows = add(l.Rates)
	own := len(r.windows)
	if len(l.Overrides) > 0 {
		l.overrides = map[limiter.Key][]*window{}
	}
	for k, rates := range l.Overrides {
		l.overrides[k] = add(rates)
	}
	if l.RateFromDescriptor {
		l.addUnits(add)
		l.nearOf = func(rate limiter.Rate) int64 { return alerts.near(rate, l.Mode) }
	}
	l.addPlans(add)
	if s := l.StepUp; s != nil {
		r.tokenFields = append(r.tokenFields, s.Header)
		l.stepUps = adder.add(s.Rates, "step_up", limiter.Limit{Algorithm: s.Algorithm, Scope: l.Scope, Noted: l.Return != nil})
		for _, w := range l.stepUps {
			w.isStepUp = true
		}
	}
	for _, w := range r.windows[own:] {
		w.isOther = true
	}
}

// countedLimit returns what the limits of all windows of l have in common, but for those of step_up.
func (l *limit) countedLimit() limiter.Limit {
	return limiter.Limit{Algorithm: l.Algorithm, Burst: l.Burst, Steps: l.Steps, Scope: l.Scope, Noted: l.Return != nil, Conversion: l.Conversion}
}

// refusalLimit returns the limit that counts the refusals of a limit with a penalty, over its longest
// window.
func refusalLimit(of *config.Limit) limiter.Limit {
	if of.Penalty == nil {
		return limiter.Limit{}
	}
	return limiter.Limit{Name: of.ID + ":refused", Rate: limiter.Rate{Count: of.Penalty.After, Window: longestWindow(of.Rates)}}
}

// A windowAdder adds the windows of a limit to its route.
type windowAdder struct {
	route  *limitRoute
	limit  *limit
	alerts alerts
}

// add adds a window for each of rates. part, if not empty, is in the names of the windows, and counted is what their limits
// have in common.
func (a *windowAdder) add(rates []limiter.Rate, part string, counted limiter.Limit) (windows []*window) {
	l := a.limit
	between := func(separator string) string {
		if part == "" {
			return separator
		}
		return separator + part + separator
	}
	for _, rate := range rates {
		span := limiter.WindowName(rate.Window)
		shown := rate
		switch {
		case counted.Algorithm.HasLeases():
			span = "held"
		case counted.Algorithm.HasSteps():
			span = "cooldown" // one name whatever the steps are
			shown.Window = l.Steps[len(l.Steps)-1]
		}
		w := &window{of: l, number: len(a.route.windows), rate: l.Name + between("-") + span, policy: l.Name, shown: shown, near: a.alerts.near(rate, l.Mode), Limit: counted}
		if len(rates) > 1 {
			w.policy += "-" + span
		}
		w.Name, w.Limit.Rate, w.Owner = l.ID+between(":")+span, rate, w
		_ = w.Prepare() // config has checked it; if it were not valid, stores would refuse each claim
		windows, a.route.windows = append(windows, w), append(a.route.windows, w)
	}
	return windows
}

// A plan is the compiled form of one entry under plans of a limit: the rates of the keys that have it.
type plan struct {
	name    string
	windows []*window // none: the limit does not apply
}

// addPlans compiles the plans of l. add adds windows to its route.
func (l *limit) addPlans(add func(rates []limiter.Rate) []*window) {
	if l.Plans == nil {
		return
	}
	l.plans = map[string]*plan{}
	for name, rates := range l.Plans {
		p := &plan{name, add(rates)}
		for _, w := range p.windows {
			w.plan = name
		}
		l.plans[name] = p
	}
}

// RateLimitUnits returns the length of each unit of Envoy's RateLimitUnit by its number: none, second, minute, hour,
// day, month, year, week. Months and years are those of envoyproxy/ratelimit.
func RateLimitUnits() [8]time.Duration {
	const day = 24 * time.Hour
	return [8]time.Duration{0, time.Second, time.Minute, time.Hour, day, 30 * day, 365 * day, 7 * day}
}

// addUnits adds a window to l for each unit. A count belongs to the name of its window, and so to the unit, whatever
// the number is. There are no others, so the memory for names is bounded whatever descriptors have.
func (l *limit) addUnits(add func(rates []limiter.Rate) []*window) {
	for _, unit := range RateLimitUnits() {
		if unit > 0 {
			l.units = append(l.units, add([]limiter.Rate{{Count: limiter.MaxCount, Window: unit}})...)
		}
	}
	for _, w := range l.units {
		w.isUnit = true
	}
}

// unit returns the window of l for the rates of descriptors over this length, nil if there is none.
func (l *limit) unit(length time.Duration) *window {
	if i := slices.IndexFunc(l.units, func(w *window) bool { return w.Rate.Window == length }); i >= 0 {
		return l.units[i]
	}
	return nil
}

// hasOtherRates reports whether keys of l may have other rates than those of all keys.
func (l *limit) hasOtherRates() bool { return len(l.overrides)+len(l.plans)+len(l.units) > 0 }

// windowsOf returns the windows of l for a key: that of the descriptor's rate, those that the key has of its own, or those
// of all keys. found is false if they depend on its plan.
func (l *limit) windowsOf(k limiter.Key, described *limiter.Rate) (windows []*window, found bool, err error) {
	if l.units != nil {
		windows, err = l.describedWindows(described)
		return windows, true, err
	}
	if own, ok := l.overrides[k]; ok {
		return own, true, nil
	}
	return l.windows, l.plans == nil, nil
}

// describedWindows returns the window for the rate of a descriptor; those of l if it has none, or none that can be used.
func (l *limit) describedWindows(rate *limiter.Rate) ([]*window, error) {
	if rate == nil {
		return l.windows, nil
	}
	unit := l.unit(rate.Window)
	switch {
	case unit == nil:
		return l.windows, nil
	case rate.Count == 0:
		return nil, fmt.Errorf("%s: %w: its descriptor has a limit of 0", l.Name, errCost)
	}
	return []*window{unit.withCount(rate.Count)}, nil
}

// withCount returns a copy of w, a unit, with the count of a descriptor. It is not prepared: that costs more than one
// check of it.
func (w *window) withCount(count int64) *window {
	own := *w
	own.Rate.Count, own.Owner = count, &own
	own.near = w.of.nearOf(own.Rate)
	return &own
}

// plainLimits returns those of limits whose counts alone determine which keys would be refused.
func plainLimits(limits []*limit) []limiter.Limit {
	var all []limiter.Limit
	for _, l := range limits {
		plain := !l.Algorithm.HasValues() && !l.Algorithm.HasSteps() && l.Scope == limiter.Overall
		if !plain || l.Mode != config.Enforce || l.RedissonName != "" || len(l.overrides)+len(l.plans)+len(l.units) > 0 {
			continue
		}
		for _, w := range l.windows {
			all = append(all, w.Limit)
		}
	}
	return all
}

// An idempotency lets a client repeat a request whose response it did not receive: repeats of a
// counted request are not counted. The number of free repeats is limited, because an upstream that
// ignores the key repeats its work each time. Both limits are kept in the store of the route's
// limits.
type idempotency struct {
	*config.Idempotency
	firstUse, repeats limiter.Limit
}

func newIdempotency(route string, c *config.Idempotency) *idempotency {
	if c == nil {
		return nil
	}
	limit := func(name string, count int64) limiter.Limit {
		return limiter.Limit{Name: route + ".idempotency:" + name, Rate: limiter.Rate{Count: count, Window: c.Life}}
	}
	return &idempotency{Idempotency: c, firstUse: limit("once", 1), repeats: limit("repeats", c.Repeats)}
}

// longestWindow returns the longest window of rates.
func longestWindow(rates []limiter.Rate) (window time.Duration) {
	for _, r := range rates {
		window = max(window, r.Window)
	}
	return window
}
