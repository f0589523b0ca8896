package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// The result of a limit for a request.
const (
	resultNone = iota // the limit does not apply
	resultAllowed
	resultRefused
	resultUnknown
)

// resultOf returns the result of l for x.
func (x *exchange) resultOf(l *limit) int {
	if l.Mode == config.Shadow {
		return x.shadowResultOf(l)
	}
	result := resultNone
	for i := range x.decision.Outcomes {
		if i >= len(x.claims.windows) || x.claims.windows[i].of != l {
			continue
		}
		o := &x.decision.Outcomes[i]
		switch {
		case !o.Allowed:
			return resultRefused
		case !o.Unknown:
			result = resultAllowed
		case result == resultNone:
			result = resultUnknown
		}
	}
	return result
}

// shadowResultOf returns the result of a limit in shadow mode.
func (x *exchange) shadowResultOf(l *limit) int {
	if slices.Contains(x.shadowErrors, l) {
		return resultRefused
	}
	if slices.ContainsFunc(x.shadowRefusals, func(s refusal) bool { return s.window.of == l }) {
		return resultRefused
	}
	if x.shadows.indexOf(l) >= 0 {
		return resultAllowed
	}
	return resultNone
}

// refusedKey returns the key for which l refused x, or would have.
func (x *exchange) refusedKey(l *limit) limiter.Key {
	for _, set := range []claimSet{x.claims, x.shadows} {
		if i := set.indexOf(l); i >= 0 {
			return set.claims[i].Key
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
