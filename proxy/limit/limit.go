// Package limit decides about requests by the limits of a route.
//
// A Route is what a route has of limits in their compiled form: each Limit with its windows, on which claims are made,
// and what responses do to limits of other routes. An Admission is the part of a request that concerns them: its
// claims, the decision, and the permits that it has taken. An Admitter takes the claims of an admission in one step
// or waits for them (admit.go), renews concurrent ones (lease.go), takes permits ahead for keys that all
// requests have (ahead.go), decides by this node's share while a shared store is unreachable (fallback.go), lets limits
// in shadow mode decide beside (shadow.go), and requests pass by a challenge (step_up.go); it counts refusals for a
// penalty (penalize.go). Afterwards it settles the admission by the Outcome of its request: refund.go, and
// pending.go where another node is told of the outcome.
//
// The package knows no HTTP, no upstream and nothing else of a request. A request asks it which claims to make, and is asked for the
// names of its keys in the log and for the tokens of challenges.
package limit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/sends"
	"github.com/weir-proxy/weir/proxy/view"
)

// A Route is what a route has of limits. It is immutable, except for the counters of its limits.
type Route struct {
	*config.Route
	Active      []*Limit // the limits that are not off
	Windows     []*Window
	Others      []OtherRule   // what responses of this route do to limits of others
	TokenFields []string      // fields with tokens of challenges, which are not forwarded
	Repeats     *idempotency  // nil if repeats are counted
	MaxWait     time.Duration // the longest that a limit lets a request wait for a permit
	settling    []*Limit      // limits that may refund permits of a request that was forwarded, whatever RefundOn says
}

// NewRoute compiles what a route has of limits.
func NewRoute(from *config.Route, a config.Alerts) Route {
	r := Route{Route: from, Repeats: newIdempotency(from.Name, from.Idempotency)}
	for _, l := range from.Limits {
		if l.Mode != config.Off {
			r.addLimit(l, a)
		}
	}
	return r
}

// SettlesHead reports whether the head of a response may refund or return permits, or reset cooldowns.
func (r *Route) SettlesHead() bool {
	return len(r.Others) > 0 || len(r.Active) > 0 && len(r.RefundOn.Status) > 0 ||
		slices.ContainsFunc(r.settling, func(l *Limit) bool { return l.Count != nil })
}

// A Limit is the compiled form of one entry under limits of a route.
type Limit struct {
	*config.Limit
	Top          *decisions.Counter // counts the most frequent keys; nil if they are not counted
	Windows      []*Window
	StepUps      []*Window                               // the rates of step_up
	ByKey        map[limiter.Key][]*Window               // windows of keys that have rates of their own
	ByPlan       map[string]*Plan                        // by name; nil without plans
	Units        []*Window                               // for the rates of descriptors, one for each unit; nil without rate_from
	HasKeyName   bool                                    // RedissonName contains {key}
	ShadowNotes  *limiter.Limit                          // notes what the limit would have refused, see shadowNotes; nil if it returns nothing, or refuses
	Sends        *sends.Counter                          // counts what becomes of the requests; nil without return_on
	Country      *Limit                                  // of a limit on ranges of phone numbers: that on their countries, see countryLimit
	RefusalLimit limiter.Limit                           // the limit on the number of refusals before a penalty
	alerts       config.Alerts                           // see near
	decisions    metrics.Cache[string, *metrics.Counter] // by result
}

// A Window is one rate of a limit, on which claims are made.
type Window struct {
	Of            *Limit
	Number        int          // index among the route's windows and its rate limit fields' policies
	LogName       string       // name in the log: phone-1h
	Policy        string       // name in the rate limit fields: phone
	Shown         limiter.Rate // the rate in these fields
	Plan          string       // the name of the plan; empty if it is of none
	IsOther       bool         // not a rate of all keys of the limit
	isStepUp      bool         // a rate of step_up
	IsUnit        bool         // its count is that of a descriptor, and the greatest one in the units of its limit
	near          int64        // an alert is due if fewer permits than this remain; 0 for none
	limiter.Limit              // its window is longer than that of the rate by the lease
}

// Written returns a rate by which a store counts as it is written: its window is not longer by the lease.
func (w *Window) Written(counted limiter.Rate) limiter.Rate {
	counted.Window -= w.Of.Ahead
	return counted
}

// allWindows returns the windows of l, also those of keys with rates of their own, but not those of step_up.
func (l *Limit) allWindows() []*Window {
	all := slices.Clone(l.Windows)
	for _, windows := range l.ByKey {
		all = append(all, windows...)
	}
	for _, p := range l.ByPlan {
		all = append(all, p.Windows...)
	}
	return all
}

// noted returns the windows whose permits are noted: a store has a note for those of counted requests, and one for step_up.
func (l *Limit) noted() (all [][]*limiter.Limit) {
	for _, windows := range [][]*Window{l.allWindows(), l.StepUps} {
		if len(windows) > 0 {
			all = append(all, view.Each(windows, func(w *Window) *limiter.Limit { return &w.Limit }))
		}
	}
	return all
}

// CountedUnder returns the windows of a key, and those under which it counts by step_up, by the rates of descriptors, or if
// its plan changes.
func (l *Limit) CountedUnder(windows []*Window) []*Window {
	all, more := slices.Clone(windows), slices.Concat(l.StepUps, l.Units)
	if l.ByPlan != nil {
		more = append(more, l.Windows...)
	}
	for _, name := range slices.Sorted(maps.Keys(l.ByPlan)) {
		more = append(more, l.ByPlan[name].Windows...)
	}
	for _, w := range more {
		if !slices.ContainsFunc(all, func(o *Window) bool { return o.Limit.Name == w.Limit.Name }) {
			all = append(all, w)
		}
	}
	return all
}

// IsOf reports whether l is a limit of the route, alone or with others.
func (l *Limit) IsOf(route string) bool { return l.Route == route || slices.Contains(l.Routes, route) }

// IsNamed reports whether l is among those that the name of a route and of a limit, which may be the full one, stand for: all if
// they are empty.
func (l *Limit) IsNamed(route, name string) bool {
	return (route == "" || l.IsOf(route)) && (name == "" || name == l.Name || name == l.FullName())
}

// IsShadow reports whether l refuses nothing, and only tells what it would refuse.
func (l *Limit) IsShadow() bool { return l.Mode == config.Shadow }

// Enforces reports whether l refuses requests.
func (l *Limit) Enforces() bool { return l.Mode == config.Enforce }

// IsEarly reports whether l may refuse a request before all is known of it: nothing but its rates matters.
func (l *Limit) IsEarly() bool { return l.Enforces() && l.Wait == 0 && l.StepUp == nil }

// IsLocal reports whether this node decides by its share of l while the store is unreachable.
func (l *Limit) IsLocal() bool { return l.OnStoreFailure == config.Local }

// IsShared reports whether programs with Redisson share l.
func (l *Limit) IsShared() bool { return l.RedissonName != "" }

// SharedName returns the name of the Redisson limiter that counts a key with this text, "" if l is not shared. It is not
// valid if the text cannot be part of a name.
func (l *Limit) SharedName(text string) (name string, valid bool) {
	if !l.IsShared() {
		return "", true
	}
	name = strings.ReplaceAll(l.RedissonName, "{key}", text)
	return name, (!l.HasKeyName || limiter.CheckRedissonKey(text) == nil) && limiter.CheckRedissonName(name) == nil
}

// PlanList returns the list that has the plans of keys, nil if there is none.
func (l *Limit) PlanList() *key.List { return l.Plan.List }

// PlanKey returns what each request says its plan by, nil if none does.
func (l *Limit) PlanKey() *key.Spec { return l.Plan.Name }

// ClaimsUnder returns claims under a key on some windows of l and, if it has a penalty, on its count of refusals. shared is
// the name of the key's Redisson limiter.
func (l *Limit) ClaimsUnder(k limiter.Key, windows []*Window, shared string) []limiter.Claim {
	claims := view.Each(windows, func(w *Window) limiter.Claim {
		return limiter.Claim{Limit: &w.Limit, Key: k, Cost: 1, RedissonName: shared, RedissonFormat: l.RedissonFormat}
	})
	if l.Penalty != nil {
		claims = append(claims, limiter.Claim{Limit: &l.RefusalLimit, Key: k, Cost: 1})
	}
	return claims
}

// IsShown reports whether clients may see l.
func (l *Limit) IsShown() bool { return l.Expose && l.Mode == config.Enforce }

// addLimit adds a limit.
func (r *Route) addLimit(from *config.Limit, alerts config.Alerts) {
	l := &Limit{Limit: from, HasKeyName: strings.Contains(from.RedissonName, "{key}"), alerts: alerts}
	r.Active = append(r.Active, l)
	if l.Enforces() {
		r.MaxWait = max(r.MaxWait, l.Wait)
	}
	if l.Count != nil || l.Algorithm.HasLeases() {
		r.settling = append(r.settling, l)
	}
	if from.Penalty != nil { // refusals count over the longest window
		l.RefusalLimit = limiter.Limit{Name: from.ID + ":refused", Rate: limiter.Rate{Count: from.Penalty.After, Window: from.LongestWindow()}}
	}
	l.ShadowNotes = shadowNotes(from)
	l.Sends = newSends(from, l.ShadowNotes)
	like := Window{Of: l, Policy: l.Name, Limit: limiter.Limit{
		Algorithm: l.Algorithm, Burst: l.Burst, Steps: l.Steps, Scope: l.Scope, Noted: l.Return != nil, Conversion: l.Conversion,
	}}
	l.Windows = r.addWindows(l.Rates, like)
	like.IsOther = true
	if len(l.Overrides) > 0 {
		l.ByKey = map[limiter.Key][]*Window{}
	}
	for k, rates := range l.Overrides {
		l.ByKey[k] = r.addWindows(rates, like)
	}
	if l.RateFrom != "" {
		r.addUnits(l, like)
	}
	if l.Plans != nil {
		l.ByPlan = map[string]*Plan{}
	}
	for name, rates := range l.Plans {
		like.Plan = name
		l.ByPlan[name] = &Plan{name, r.addWindows(rates, like)}
	}
	if s := l.StepUp; s != nil {
		r.TokenFields = append(r.TokenFields, s.Header)
		like = Window{Of: l, Policy: l.Name, IsOther: true, isStepUp: true, Limit: limiter.Limit{Algorithm: s.Algorithm, Scope: l.Scope, Noted: like.Noted}}
		l.StepUps = r.addWindows(s.Rates, like, "step_up")
	}
}

// addWindows adds a window of a limit for each of rates. like is what the windows have in common, and part is in their names.
func (r *Route) addWindows(rates []limiter.Rate, like Window, part ...string) (windows []*Window) {
	l := like.Of
	for _, rate := range rates {
		span := limiter.WindowName(rate.Window)
		shown := rate
		switch {
		case like.Algorithm.HasLeases():
			span = "held"
		case like.Algorithm.HasSteps():
			span = "cooldown" // one name whatever the steps are
			shown.Window = l.Steps[len(l.Steps)-1]
		}
		w := new(like)
		w.Number, w.LogName, w.Shown = len(r.Windows), l.Name+"-"+strings.Join(append(part, span), "-"), shown
		if len(rates) > 1 {
			w.Policy += "-" + span
		}
		w.Name, w.Limit.Rate, w.Owner = l.ID+":"+strings.Join(append(part, span), ":"), rate, w
		w.Rate.Window += l.Ahead // see aheadStore
		w.near = l.near(w.Limit)
		_ = w.Prepare() // config has checked it; if it were not valid, stores would refuse each claim
		windows, r.Windows = append(windows, w), append(r.Windows, w)
	}
	return windows
}

// A Plan is the compiled form of one entry under plans of a limit: the rates of the keys that have it.
type Plan struct {
	Name    string
	Windows []*Window // none: the limit does not apply
}

// RateLimitUnits returns the length of each unit of Envoy's RateLimitUnit by its number: none, second, minute, hour,
// day, month, year, week. Months and years are those of envoyproxy/ratelimit.
func RateLimitUnits() [8]time.Duration {
	const day = 24 * time.Hour
	return [8]time.Duration{0, time.Second, time.Minute, time.Hour, day, 30 * day, 365 * day, 7 * day}
}

// addUnits adds a window of l for each unit. A count belongs to the name of its window, and so to the unit, whatever
// the number is. There are no others, so the memory for names is bounded whatever descriptors have.
func (r *Route) addUnits(l *Limit, like Window) {
	like.IsUnit = true
	for _, unit := range RateLimitUnits() {
		if unit > 0 {
			l.Units = append(l.Units, r.addWindows([]limiter.Rate{{Count: limiter.MaxCount, Window: unit}}, like)...)
		}
	}
}

// Unit returns the window of l for the rates of descriptors over this length, nil if there is none.
func (l *Limit) Unit(length time.Duration) *Window {
	if i := slices.IndexFunc(l.Units, func(w *Window) bool { return w.Rate.Window == length }); i >= 0 {
		return l.Units[i]
	}
	return nil
}

// HasOtherRates reports whether keys of l may have other rates than those of all keys.
func (l *Limit) HasOtherRates() bool { return len(l.ByKey)+len(l.ByPlan)+len(l.Units) > 0 }

// WindowsOf returns the windows of l for a key: that of the descriptor's rate, those that the key has of its own, or those
// Of all keys. found is false if they depend on its plan.
func (l *Limit) WindowsOf(k limiter.Key, described *limiter.Rate) (windows []*Window, found bool, err error) {
	if l.Units != nil {
		windows, err = l.describedWindows(described)
		return windows, true, err
	}
	if own, ok := l.ByKey[k]; ok {
		return own, true, nil
	}
	return l.Windows, l.ByPlan == nil, nil
}

// describedWindows returns the window for the rate of a descriptor; those of l if it has none, or none that can be used.
func (l *Limit) describedWindows(rate *limiter.Rate) ([]*Window, error) {
	if rate == nil {
		return l.Windows, nil
	}
	unit := l.Unit(rate.Window)
	switch {
	case unit == nil:
		return l.Windows, nil
	case rate.Count == 0:
		return nil, fmt.Errorf("%s: %w: its descriptor has a limit of 0", l.Name, ErrCost)
	}
	return []*Window{unit.withCount(rate.Count)}, nil
}

// withCount returns a copy of w, a unit, with the count of a descriptor. It is not prepared: that costs more than one
// check of it.
func (w *Window) withCount(count int64) *Window {
	own := *w
	own.Rate.Count, own.Owner = count, &own
	own.near = w.Of.near(own.Limit)
	return &own
}

// Plain returns those of limits whose counts alone determine which keys would be refused.
func Plain(limits []*Limit) []limiter.Limit {
	var all []limiter.Limit
	for _, l := range limits {
		plain := !l.Algorithm.HasValues() && !l.Algorithm.HasSteps() && l.Scope == limiter.Overall
		if !plain || l.Mode != config.Enforce || l.RedissonName != "" || l.HasOtherRates() {
			continue
		}
		all = slices.Concat(all, view.Each(l.Windows, func(w *Window) limiter.Limit { return w.Limit }))
	}
	return all
}

// An idempotency lets a client repeat a request whose response it did not receive: repeats of a
// counted request are not counted. The number of free repeats is limited, because an upstream that
// ignores the key repeats its work each time. Both limits are kept in the store of the route's
// limits.
type idempotency struct {
	*config.Idempotency
	FirstUse, repeats limiter.Limit
}

func newIdempotency(route string, c *config.Idempotency) *idempotency {
	if c == nil {
		return nil
	}
	limit := func(name string, count int64) limiter.Limit {
		return limiter.Limit{Name: route + ".idempotency:" + name, Rate: limiter.Rate{Count: count, Window: c.Life}}
	}
	return &idempotency{Idempotency: c, FirstUse: limit("once", 1), repeats: limit("repeats", c.Repeats)}
}
