package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// What a limit says of a request.
const (
	saidNothing = iota // it does not apply
	saidYes
	saidNo
	notAsked
)

// saidBy is what l said of x.
func (x *exchange) saidBy(l *limit) int {
	if l.Mode == config.Shadow {
		return x.shadowSaid(l)
	}
	said := saidNothing
	for i := range x.decision.Outcomes {
		if i >= len(x.asks.windows) || x.asks.windows[i].of != l {
			continue
		}
		o := &x.decision.Outcomes[i]
		switch {
		case !o.Allowed:
			return saidNo
		case !o.Unknown:
			said = saidYes
		case said == saidNothing:
			said = notAsked
		}
	}
	return said
}

// shadowSaid is the same of a limit in shadow mode.
func (x *exchange) shadowSaid(l *limit) int {
	if slices.Contains(x.shadowErrors, l) {
		return saidNo
	}
	if slices.ContainsFunc(x.shadowed, func(s refusal) bool { return s.window.of == l }) {
		return saidNo
	}
	if x.shadows.first(l) >= 0 {
		return saidYes
	}
	return saidNothing
}

// refusedKey is the key under which l refused x, or would have.
func (x *exchange) refusedKey(l *limit) limiter.Key {
	for _, asked := range []asks{x.asks, x.shadows} {
		if i := asked.first(l); i >= 0 {
			return asked.claims[i].Key
		}
	}
	return limiter.Key{}
}

// label is the key of l for people to read.
func (v *visit) label(l *limit) string {
	if v.labels != nil {
		return v.labels[l]
	}
	return v.x.label(l)
}

func (x *exchange) label(l *limit) string {
	if err := l.Key.Extract(x, &x.extracted.value); err != nil {
		return "no valid key"
	}
	return x.extracted.value.Masked()
}

// labels are those of all limits of x that are asked.
func (x *exchange) labels() map[*limit]string {
	all := map[*limit]string{}
	for _, w := range slices.Concat(x.asks.windows, x.shadows.windows) {
		all[w.of] = x.label(w.of)
	}
	return all
}
