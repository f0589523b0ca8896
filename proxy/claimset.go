package proxy

import (
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// claimSet are what a request asks of its route's limits, in one step. What is asked of
// one limit stands together.
type claimSet struct {
	claims  []limiter.Claim
	windows []*window // windows[i] is what claims[i] asks for
}

func (a *claimSet) add(c limiter.Claim, w *window) {
	a.claims, a.windows = append(a.claims, c), append(a.windows, w)
}

// none is nothing, in the memory of a.
func (a claimSet) none() claimSet { return claimSet{a.claims[:0], a.windows[:0]} }

func (a claimSet) clone() claimSet { return claimSet{slices.Clone(a.claims), slices.Clone(a.windows)} }

// part is what is asked by the claims between.
func (a claimSet) part(from, to int) claimSet { return claimSet{a.claims[from:to], a.windows[from:to]} }

// limit is the limit that the claim is of at from, and where those of the next one
// begin.
func (a claimSet) limit(from int) (of *limit, to int) {
	of = a.windows[from].of
	for to = from + 1; to < len(a.windows) && a.windows[to].of == of; to++ {
	}
	return of, to
}

// first is the first claim of a limit; -1 if none is asked of it.
func (a claimSet) first(of *limit) int {
	return slices.IndexFunc(a.windows, func(w *window) bool { return w.of == of })
}

// has reports whether something is asked of such a limit.
func (a claimSet) has(such func(*limit) bool) bool {
	return slices.ContainsFunc(a.windows, func(w *window) bool { return such(w.of) })
}

// current is the claim under the secret in use that claim i repeats under the previous
// one; i if it repeats none.
func (a claimSet) current(i int) int { return slices.Index(a.windows, a.windows[i]) }
