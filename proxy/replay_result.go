package proxy

import (
	"cmp"
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
	if k, found := x.extracted.logged.find(l.Key); found {
		return l.Key.Name + "=" + k.text // the field key of the log
	}
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

// maxTopKeysCounted is the maximum number of keys of a limit that are counted at a time.
const maxTopKeysCounted = 1 << 15

// topKeys counts the refusals of each key. If there are too many keys, the half with the fewest
// refusals is removed. A count is then too low by at most maxError.
type topKeys struct {
	counts   map[limiter.Key]*ReplayKey
	maxError int64
}

func newTopKeys() *topKeys { return &topKeys{counts: map[limiter.Key]*ReplayKey{}} }

// add counts one refusal. label is called once for each key.
func (t *topKeys) add(k limiter.Key, label func() string) {
	c := t.counts[k]
	if c == nil {
		if len(t.counts) >= maxTopKeysCounted {
			t.evict()
		}
		c = &ReplayKey{Key: label()}
		t.counts[k] = c
	}
	c.Refused++
}

// evict removes keys. A removed key that returns starts at 0. Each time, its count may lack at
// most the largest count that was removed.
func (t *topKeys) evict() {
	counts := make([]int64, 0, len(t.counts))
	for _, c := range t.counts {
		counts = append(counts, c.Refused)
	}
	slices.Sort(counts)
	median := counts[len(counts)/2]
	for k, c := range t.counts {
		if c.Refused <= median {
			delete(t.counts, k)
		}
	}
	t.maxError += median
}

// first returns the n keys with the most refusals.
func (t *topKeys) first(n int) (keys []ReplayKey, lost int64) {
	keys = []ReplayKey{}
	for _, c := range t.counts {
		keys = append(keys, *c)
	}
	slices.SortFunc(keys, func(a, b ReplayKey) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(n, len(keys))], t.maxError
}
