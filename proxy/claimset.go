package proxy

import (
	"fmt"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A claimSet is a list of claims of limits. Claims on the same limit are adjacent.
type claimSet []limiter.Claim

// window returns the window of claim i.
func (s claimSet) window(i int) *window { return s[i].Limit.Owner.(*window) }

// add adds a claim for each of the windows. The claims differ from c only in their limit.
func (s *claimSet) add(windows []*window, c *limiter.Claim) {
	for _, w := range windows {
		c.Limit = &w.Limit
		*s = append(*s, *c)
	}
}

// limitAt returns the limit of the claim at index from, and the index of the first claim of the next
// limit.
func (s claimSet) limitAt(from int) (of *limit, to int) {
	of = s.window(from).of
	for to = from + 1; to < len(s) && s.window(to).of == of; to++ {
	}
	return of, to
}

// indexOf returns the index of the first claim on a limit, or -1.
func (s claimSet) indexOf(of *limit) int {
	for i := range s {
		if s.window(i).of == of {
			return i
		}
	}
	return -1
}

// remove removes the claims on a limit.
func (s *claimSet) remove(of *limit) {
	if from := s.indexOf(of); from >= 0 {
		_, to := s.limitAt(from)
		*s = slices.Delete(*s, from, to)
	}
}

// anyLimit reports whether there is a claim on a limit for which such returns true.
func (s claimSet) anyLimit(such func(*limit) bool) bool {
	for i := range s {
		if such(s.window(i).of) {
			return true
		}
	}
	return false
}

// currentIndex returns the index of the claim under the current secret that claim i repeats under the
// previous one, or i if it repeats none.
func (s claimSet) currentIndex(i int) (first int) {
	for s[first].Limit != s[i].Limit {
		first++
	}
	return first
}

// mergePrevious merges the outcomes under the previous secret into those under the current one. A
// limit is reached if it is reached under either.
func (s claimSet) mergePrevious(outcomes []limiter.Outcome) {
	for i, o := range outcomes {
		if own := s.currentIndex(i); own != i {
			merge(&outcomes[own], o)
		}
	}
}

// mergePrevious merges the outcomes under the previous secret, if there are any.
func (a *admission) mergePrevious() {
	if a.bothSecrets {
		a.claims.mergePrevious(a.decision.Outcomes)
	}
}

// merge makes both what both and o say together.
func merge(both *limiter.Outcome, o limiter.Outcome) {
	both.Allowed, both.Banned, both.Unknown = both.Allowed && o.Allowed, both.Banned || o.Banned, both.Unknown && o.Unknown
	both.Remaining, both.Wait = min(both.Remaining, o.Remaining), max(both.Wait, o.Wait)
}

// decidedAt returns the limit of the claim at index from, the index of the first claim of the next limit, and what the
// outcomes of the limit say together: allowed and unknown if there are none.
func (s claimSet) decidedAt(from int, outcomes []limiter.Outcome) (of *limit, to int, all limiter.Outcome) {
	of, to = s.limitAt(from)
	all = limiter.Outcome{Allowed: true, Unknown: true, Remaining: limiter.MaxCount}
	for i := from; i < min(to, len(outcomes)); i++ {
		merge(&all, outcomes[i])
	}
	return of, to, all
}

// sharesCount reports whether claims on w and o under one key have one count: so do those on one window, and on
// the windows of two rates that descriptors have.
func (w *window) sharesCount(o *window) bool { return w == o || w.Limit.Name == o.Limit.Name }

// merge adds a claim, behind those on the same limit. Of two rates of one count the lower one decides. It returns an error
// that wraps errCost, and s may not be used, if no unused key has room for both claims, or if they have two
// values.
func (s *claimSet) merge(w *window, claim *limiter.Claim) error {
	if i := s.index(w, claim.Key); i >= 0 {
		return s.mergeAt(i, w, claim)
	}
	at := len(*s)
	if i := s.indexOf(w.of); i >= 0 {
		_, at = s.limitAt(i)
	}
	*s = slices.Insert(*s, at, *claim)
	return nil
}

// mergeAt merges a claim into claim i, which has the same count.
func (s claimSet) mergeAt(i int, w *window, claim *limiter.Claim) error {
	own := &s[i]
	if own.Value != claim.Value {
		return fmt.Errorf("%s: %w: one key with two values", w.of.Name, errCost)
	}
	if w.Rate.Count < own.Limit.Rate.Count {
		own.Limit = &w.Limit
	}
	if w.Algorithm.HasValues() {
		return nil
	}
	if own.Cost += claim.Cost; own.Cost > own.Limit.Capacity() {
		return exceeds(w, own.Cost)
	}
	return nil
}

// exceeds returns the error of descriptors with so many hits for one key.
func exceeds(w *window, hits int64) error {
	return fmt.Errorf("%s: %w: %d hits exceed the maximum", w.of.Name, errCost, hits)
}

// index returns the index of a claim, or -1.
func (s claimSet) index(w *window, k limiter.Key) int {
	for i := range s {
		if s[i].Key == k && s.window(i).sharesCount(w) {
			return i
		}
	}
	return -1
}
