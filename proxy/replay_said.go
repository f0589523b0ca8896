package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// The result of a limit for a request.
const (
	verdictNone = iota // the limit does not apply
	verdictAllowed
	verdictRefused
	notAsked
)

// saidBy returns the result of l for x.
func (x *exchange) saidBy(l *limit) int {
	if l.Mode == config.Shadow {
		return x.shadowSaid(l)
	}
	said := verdictNone
	for i := range x.decision.Outcomes {
		if i >= len(x.claims.windows) || x.claims.windows[i].of != l {
			continue
		}
		o := &x.decision.Outcomes[i]
		switch {
		case !o.Allowed:
			return verdictRefused
		case !o.Unknown:
			said = verdictAllowed
		case said == verdictNone:
			said = notAsked
		}
	}
	return said
}

// shadowSaid returns the result of a limit in shadow mode.
func (x *exchange) shadowSaid(l *limit) int {
	if slices.Contains(x.shadowErrors, l) {
		return verdictRefused
	}
	if slices.ContainsFunc(x.shadowed, func(s refusal) bool { return s.window.of == l }) {
		return verdictRefused
	}
	if x.shadows.first(l) >= 0 {
		return verdictAllowed
	}
	return verdictNone
}

// refusedKey returns the key for which l refused x, or would have.
func (x *exchange) refusedKey(l *limit) limiter.Key {
	for _, asked := range []claimSet{x.claims, x.shadows} {
		if i := asked.first(l); i >= 0 {
			return asked.claims[i].Key
		}
	}
	return limiter.Key{}
}

// label returns the masked key of l.
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

// labels returns the masked keys of all limits of x that apply.
func (x *exchange) labels() map[*limit]string {
	all := map[*limit]string{}
	for _, w := range slices.Concat(x.claims.windows, x.shadows.windows) {
		all[w.of] = x.label(w.of)
	}
	return all
}
