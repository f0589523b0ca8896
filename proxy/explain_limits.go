package proxy

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// explainKeys tells of each key that the route reads, those of limits first.
func (e *explainer) explainKeys() {
	r := e.x.route
	var specs []*key.Spec
	for _, l := range r.limits {
		specs = append(specs, l.Key)
		if l.Distinct != nil {
			specs = append(specs, l.Distinct)
		}
	}
	for _, lookup := range slices.Concat(r.lists, r.bodyLists) {
		specs = append(specs, lookup.key)
	}
	if by := r.hashBy(); by != nil {
		specs = append(specs, by)
	}
	for i, s := range specs {
		if slices.Index(specs, s) == i {
			e.Keys = append(e.Keys, e.key(s))
		}
	}
}

// key tells of one key.
func (e *explainer) key(s *key.Spec) ExplainedKey {
	said := ExplainedKey{Name: s.Name, From: origin(s)}
	if err := e.x.readQuery(); err != nil {
		said.Error = err.Error()
		return said
	}
	k, err := e.generation.key(e.x, s)
	switch {
	case err != nil:
		said.Error = err.Error()
	case k.skip:
		said.Skipped = true
	default:
		said.Hash = e.x.generation.redact.key(k.Key)
		said.Value = e.shown(s)
	}
	return said
}

// shown is a key that is there, as people may see it.
func (e *explainer) shown(s *key.Spec) string {
	if err := s.Extract(e.x, &e.x.extracted.value); err != nil {
		return ""
	}
	return e.x.extracted.value.Shown()
}

// origin says where a key is read from.
func origin(s *key.Spec) string {
	switch {
	case s.Of != nil:
		return string(s.Part.Kind) + " of " + s.Of.Name
	case len(s.Join) > 0:
		var names []string
		for _, part := range s.Join {
			names = append(names, part.Name)
		}
		return strings.Join(names, " + ")
	}
	return s.From.String()
}

// explainLists tells of each list of the route whether the request is on it.
func (e *explainer) explainLists() {
	x := e.x
	for _, lookup := range slices.Concat(x.route.lists, x.route.bodyLists) {
		found := x.readQuery() == nil && lookup.key.Extract(x, &x.extracted.value) == nil && !x.extracted.value.Skip
		for _, l := range lookup.lists {
			e.Lists = append(e.Lists, ExplainedList{Name: l.Name, Key: lookup.key.Name, Action: string(l.Action), Hit: found && x.isOn(l)})
		}
	}
}

// explainLimits tells of each limit of the route what it would say by itself.
func (e *explainer) explainLimits() {
	x := e.x
	for _, from := range x.route.Limits {
		said := ExplainedLimit{
			Name: from.Name, Key: from.Key.Name, Algorithm: from.Algorithm.String(), Mode: string(from.Mode), Scope: from.Scope.String(),
			OnStoreFailure: string(from.OnStoreFailure), Exposed: from.Expose, Cost: 1, Windows: []ExplainedWindow{},
		}
		if from.Distinct != nil {
			said.Distinct = from.Distinct.Name
		}
		if from.Wait > 0 {
			said.Wait = from.Wait.String()
		}
		if from.Penalty != nil {
			said.Penalty = "banned for " + limiter.WindowName(from.Penalty.Ban) + " at the next refusal"
			if from.Penalty.After > 1 {
				said.Penalty = "banned for " + limiter.WindowName(from.Penalty.Ban) + " after refusals at the rate " + limiter.Rate{Count: from.Penalty.After, Window: longest(from.Rates)}.String()
			}
		}
		i := slices.IndexFunc(x.route.limits, func(l *limit) bool { return l.Name == from.Name })
		if i < 0 {
			said.Reason = "its mode is off"
		} else {
			e.explainLimit(x.route.limits[i], &said)
		}
		e.Limits = append(e.Limits, said)
	}
}

// explainLimit asks l what it would say, if it applies.
func (e *explainer) explainLimit(l *limit, said *ExplainedLimit) {
	x, a := e.x, e.proxy.admitter
	x.claims, x.shadows = x.claims.none(), x.shadows.none()
	if x.bypasses() {
		said.Reason = x.notAsked()
		return
	}
	err := x.readQuery()
	if err == nil {
		err = e.generation.claim(x, l)
	}
	asked := x.claims
	if l.Mode == config.Shadow {
		asked = x.shadows
	}
	switch {
	case err != nil:
		said.Reason = err.Error()
		return
	case len(asked.claims) == 0:
		said.Reason = "the key is missing, and on_missing or on_invalid is skip"
		return
	}
	said.Asked, said.Allowed, said.Cost, said.Shared = true, true, asked.claims[0].Cost, asked.claims[0].Redisson
	said.Value = e.shown(l.Key)
	said.Override = !slices.Contains(l.windows, asked.windows[0])

	ctx, cancel := a.bound(e.ctx)
	defer cancel()
	var d limiter.Decision
	if err := a.store.Peek(ctx, asked.claims, &d); err != nil {
		said.Asked, said.Reason = false, "the store is unreachable: "+err.Error()
		return
	}
	for i, o := range d.Outcomes {
		w := asked.windows[i]
		said.Allowed = said.Allowed && o.Allowed
		if first := asked.current(i); first < i { // the same under the secret that is being replaced
			one := &said.Windows[first]
			one.Allowed, one.Banned = one.Allowed && o.Allowed, one.Banned || o.Banned
			one.Remaining, one.WaitMS = min(one.Remaining, o.Remaining), max(one.WaitMS, o.Wait.Milliseconds())
			continue
		}
		said.Windows = append(said.Windows, ExplainedWindow{
			Rate: rateOf(w), Allowed: o.Allowed, Remaining: o.Remaining, Most: w.Most(), WaitMS: o.Wait.Milliseconds(), Banned: o.Banned,
		})
	}
}

// rateOf is the rate of w as it is written.
func rateOf(w *window) string {
	switch w.Algorithm {
	case limiter.Concurrent:
		return strconv.FormatInt(w.Rate.Count, 10) + " at a time"
	case limiter.Cooldown:
		var steps []string
		for _, s := range w.Steps {
			steps = append(steps, limiter.WindowName(s))
		}
		return strings.Join(steps, " ")
	}
	return w.Rate.String()
}

// longest is the longest window of rates.
func longest(rates []limiter.Rate) (window time.Duration) {
	for _, r := range rates {
		window = max(window, r.Window)
	}
	return window
}
