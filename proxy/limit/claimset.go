package limit

import (
	"fmt"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// A ClaimSet is a list of claims of limits. Claims on the same limit are adjacent.
type ClaimSet []limiter.Claim

// Window returns the window of claim i.
func (s ClaimSet) Window(i int) *Window { return s[i].Limit.Owner.(*Window) }

// Add adds a claim for each of the windows. The claims differ from c only in their limit.
func (s *ClaimSet) Add(windows []*Window, c *limiter.Claim) {
	for _, w := range windows {
		c.Limit = &w.Limit
		*s = append(*s, *c)
	}
}

// limitAt returns the limit of the claim at index from, and the index of the first claim of the next
// limit.
func (s ClaimSet) limitAt(from int) (of *Limit, to int) {
	of = s.Window(from).Of
	for to = from + 1; to < len(s) && s.Window(to).Of == of; to++ {
	}
	return of, to
}

// IndexOf returns the index of the first claim on a limit, or -1.
func (s ClaimSet) IndexOf(of *Limit) int {
	for i := range s {
		if s.Window(i).Of == of {
			return i
		}
	}
	return -1
}

// Remove removes the claims on a limit.
func (s *ClaimSet) Remove(of *Limit) {
	if from := s.IndexOf(of); from >= 0 {
		_, to := s.limitAt(from)
		*s = slices.Delete(*s, from, to)
	}
}

// AnyLimit reports whether there is a claim on a limit for which such returns true.
func (s ClaimSet) AnyLimit(such func(*Limit) bool) bool {
	for i := range s {
		if such(s.Window(i).Of) {
			return true
		}
	}
	return false
}

// CurrentIndex returns the index of the claim under the current secret that claim i repeats under the
// previous one, or i if it repeats none.
func (s ClaimSet) CurrentIndex(i int) (first int) {
	for s[first].Limit != s[i].Limit {
		first++
	}
	return first
}

// MergePrevious merges the outcomes under the previous secret into those under the current one. A
// limit is reached if it is reached under either.
func (s ClaimSet) MergePrevious(outcomes []limiter.Outcome) {
	for i := range outcomes {
		if own := s.CurrentIndex(i); own != i {
			merge(&outcomes[own], &outcomes[i])
		}
	}
}

// MergePrevious merges the outcomes under the previous secret, if there are any.
func (a *Admission) MergePrevious() {
	if a.BothSecrets {
		a.Claims.MergePrevious(a.Decision.Outcomes)
	}
}

// DropClaims drops the claims on limits in enforce mode, so that others can be added.
func (a *Admission) DropClaims() { a.Claims, a.BothSecrets = a.Claims[:0], false }

// merge makes both what both and o say together.
func merge(both, o *limiter.Outcome) {
	both.Allowed, both.Banned, both.Unknown = both.Allowed && o.Allowed, both.Banned || o.Banned, both.Unknown && o.Unknown
	both.Remaining, both.Wait = min(both.Remaining, o.Remaining), max(both.Wait, o.Wait)
}

// DecidedAt returns the limit of the claim at index from, the index of the first claim of the next limit, and what the
// outcomes of the limit say together: allowed and unknown if there are none.
func (s ClaimSet) DecidedAt(from int, outcomes []limiter.Outcome) (of *Limit, to int, all limiter.Outcome) {
	of, to = s.limitAt(from)
	if from >= len(outcomes) {
		return of, to, limiter.Outcome{Allowed: true, Unknown: true}
	}
	all = outcomes[from]
	for i := from + 1; i < min(to, len(outcomes)); i++ {
		merge(&all, &outcomes[i])
	}
	return of, to, all
}

// sharesCount reports whether claims on w and o under one key have one count: so do those on one window, and on
// the windows of two rates that descriptors have.
func (w *Window) sharesCount(o *Window) bool { return w == o || w.Limit.Name == o.Limit.Name }

// Merge adds a claim, behind those on the same limit. Of two rates of one count the lower one decides. It returns an error
// that wraps errCost, and s may not be used, if no unused key has room for both claims, or if they have two
// values.
func (s *ClaimSet) Merge(w *Window, claim *limiter.Claim) error {
	if i := s.Index(w, claim.Key); i >= 0 {
		return s.mergeAt(i, w, claim)
	}
	at := len(*s)
	if i := s.IndexOf(w.Of); i >= 0 {
		_, at = s.limitAt(i)
	}
	*s = slices.Insert(*s, at, *claim)
	return nil
}

// mergeAt merges a claim into claim i, which has the same count.
func (s ClaimSet) mergeAt(i int, w *Window, claim *limiter.Claim) error {
	own := &s[i]
	if own.Value != claim.Value {
		return fmt.Errorf("%s: %w: one key with two values", w.Of.Name, ErrCost)
	}
	if w.Rate.Count < own.Limit.Rate.Count {
		own.Limit = &w.Limit
	}
	if w.Algorithm.HasValues() {
		return nil
	}
	if own.Cost += claim.Cost; own.Cost > own.Limit.Capacity() {
		return Exceeds(w, own.Cost)
	}
	return nil
}

// Exceeds returns the error of descriptors with so many hits for one key.
func Exceeds(w *Window, hits int64) error {
	return fmt.Errorf("%s: %w: %d hits exceed the maximum", w.Of.Name, ErrCost, hits)
}

// Index returns the index of a claim, or -1.
func (s ClaimSet) Index(w *Window, k limiter.Key) int {
	for i := range s {
		if s[i].Key == k && s.Window(i).sharesCount(w) {
			return i
		}
	}
	return -1
}

// Charge sets the cost of claims. It returns the window of a claim that no unused key has room for, or nil.
func (s ClaimSet) Charge(hits int64) *Window {
	for i := range s {
		w := s.Window(i)
		s[i].Source = 0 // nobody knows the client
		if hits == 1 || w.Algorithm.HasValues() {
			continue
		}
		if s[i].Cost = hits; hits > w.Capacity() {
			return w
		}
	}
	return nil
}

// A Use is what a request uses of a limit.
type Use struct {
	Key                  *Key
	Cost                 int64
	Value, PreviousValue limiter.Key // the value that is counted, or the subject of return_on; also under the previous secret
	Rotates              bool        // counts under the previous secret count as well, unless the limiter is shared with Redisson
}

// Claim adds a claim on each of some windows of l. Claims on limits in shadow mode are kept separately, because they never
// refuse.
func (a *Admission) Claim(l *Limit, windows []*Window, u *Use) error {
	if u.Cost > 1 {
		if err := l.checkCost(windows, u.Cost); err != nil {
			return err
		}
	}
	shared, valid := l.SharedName(u.Key.Text)
	if !valid {
		return fmt.Errorf("%s: %w: it cannot be part of the name of a limiter", l.Key.From, key.ErrInvalid)
	}
	set := &a.Claims
	if l.IsShadow() {
		set = &a.Shadows
	}
	set.Add(windows, &limiter.Claim{Key: u.Key.Key, Cost: u.Cost, Value: u.Value, RedissonName: shared, RedissonFormat: l.RedissonFormat, Source: a.Source})
	if u.Rotates && shared == "" {
		a.BothSecrets = true
		set.Add(windows, &limiter.Claim{Key: u.Key.Previous, Cost: u.Cost, Value: u.PreviousValue, Source: a.Source})
	}
	return nil
}

// checkCost returns ErrCost, or ErrPrice of a budget, if a request of this cost could never be allowed.
func (l *Limit) checkCost(windows []*Window, cost int64) error {
	for _, w := range windows {
		if cost > w.Capacity() {
			if l.Prices != nil {
				return fmt.Errorf("%s: %w", l.Name, ErrPrice)
			}
			return fmt.Errorf("%s: %w: %d exceeds the maximum", l.Cost.From, ErrCost, cost)
		}
	}
	return nil
}

// Denies reports whether a limit refuses all requests while the store is unreachable.
func (s ClaimSet) Denies() bool {
	return s.AnyLimit(func(l *Limit) bool { return l.OnStoreFailure == config.Deny })
}
