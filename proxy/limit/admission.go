package limit

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// An Admission is the part of a request that concerns the limits of its route: the claims and the
// Decision about them. The stages that call a store take an admission instead of the exchange,
// except early and new keys.
type Admission struct {
	Admitter *Admitter // set by serve
	Asker
	view.Flags // Exempt is written by extract, the others by admit

	// Written by extract.
	Claims      ClaimSet        // claims on limits in enforce mode
	BothSecrets bool            // each claim is made twice, under the current and the previous secret
	FirstUse    []limiter.Claim // set by idempotency: the claim on the first use of the idempotency key; empty without a key

	Shadow Shadow   // what limits in shadow mode say
	asked  ClaimSet // all claims that are taken in one step, if there are others than claims; see ask
	Verdict
	Permits
	Err error // the error for the log
}

// An Asker is for whom an Admission decides, and where.
type Asker struct {
	Route    *Route    // set by match
	KeyNamer keyNamer  // set by extract; names keys in the log and in events
	Solver   solver    // set by extract: finds the tokens of challenges
	Source   uint32    // identifies the client's network where memory for keys is shared; see limiter.Claim
	Stripe   int       // where the request is counted; set by serve
	IsShared bool      // it decides for several descriptors, which count what was sent by themselves
	Due      time.Time // when the decision must have been made; zero if the store's timeout alone bounds it
}

// A Verdict is what admit writes of the limits in enforce mode.
type Verdict struct {
	Decision  limiter.Decision
	Decided   bool               // decision is valid for claims
	refusedBy limiter.AdminStore // the store that has refused what is shared
	Fallback  string             // the policy that decided while the store was unreachable
	WaitTime  time.Duration      // how long the request waited for a permit
	Steps     *stepsUp           // nil unless limits with step_up have refused the request; see stepUp
}

// Permits are what a request has taken, and what becomes of it.
type Permits struct {
	TakenPermits []TakenPermit   // with their stores
	ofShare      SharePermit     // what was taken of this node's share besides; see takeWithinShare
	KeepsPermits bool            // no outcome refunds them; see keepsPermits
	Sends        []limiter.Claim // what counts the request once it has ended, see countSends
	Settled      settlement      // set by settle: what is refunded
}

// A keyNamer returns how the log names the key of a claim: the beginning of its hash and, for a
// sensitive key, its masked value.
type keyNamer interface {
	LogKey(k limiter.Key) (hash, masked string)
}

// Reset makes a the admission of no request, with the memory that it names. A composite literal with
// this memory would be made on the stack and copied.
func (a *Admission) Reset() {
	claims, asked, outcomes := reuse.Memory(a.Claims), reuse.Memory(a.asked), reuse.Memory(a.Decision.Outcomes)
	shadow := Shadow{
		Claims: reuse.Memory(a.Shadow.Claims), Errors: reuse.Memory(a.Shadow.Errors), outcomes: reuse.Memory(a.Shadow.outcomes),
		Refusals: reuse.Memory(a.Shadow.Refusals), notes: reuse.Memory(a.Shadow.notes),
	}
	taken, sends := reuse.Memory(a.TakenPermits), reuse.Memory(a.Sends)
	settled := settlement{pending: reuse.Memory(a.Settled.pending), started: reuse.Memory(a.Settled.started)}
	*a = Admission{}
	a.Claims, a.asked, a.Decision.Outcomes, a.Shadow = claims, asked, outcomes, shadow
	a.TakenPermits, a.Sends, a.Settled = taken, sends, settled
}

// IsRefused reports whether the limits have refused the request: the stage that decided has returned
// errRefused.
func (a *Admission) IsRefused() bool { return a.Decided && !a.Decision.Allowed }

// FirstRefused returns the index of the first claim that a limit refused.
func (a *Admission) FirstRefused() (i int, found bool) {
	if a.Decision.Allowed {
		return -1, false
	}
	i = slices.IndexFunc(a.Decision.Outcomes, func(o limiter.Outcome) bool { return !o.Allowed })
	return i, i >= 0
}

// Fail records an error for the log. It is joined with earlier errors.
func (a *Admission) Fail(err error) {
	switch {
	case err == nil:
	case a.Err == nil: // as mostly: errors.Join allocates for one error, too
		a.Err = err
	default:
		a.Err = errors.Join(a.Err, err)
	}
}

// A Refusal is a rate that refused the request, or would have in shadow mode.
type Refusal struct {
	Window *Window
	Key    limiter.Key
	Banned bool
	Wait   time.Duration
}

// Refusal returns the refusal of claim i.
func (a *Admission) Refusal(i int) Refusal {
	return Refusal{a.Claims.Window(i), a.Claims[i].Key, a.Decision.Outcomes[i].Banned, a.Decision.Outcomes[i].Wait}
}

// An Key is the key of the request for one key.Spec.
type Key struct {
	Spec *key.Spec
	limiter.Key
	Previous limiter.Key // under the previous secret; zero if there is none
	Unkeyed  limiter.Key // without any secret; only set where new keys are limited, and kept in this process
	Text     string      // the key in the names of shared Redisson limiters
	Number   key.Number  // zero if the key is no phone number
	Skip     bool        // the key is missing, and limits on it do not apply
	Masked   string      // the masked value, for the log; only of a sensitive key
}

// all returns the key under the current secret and, if that is another, under the previous one.
func (k *Key) all() []limiter.Key {
	if k.Previous == k.Key || k.Previous == (limiter.Key{}) { // of a Replay both may be one
		return []limiter.Key{k.Key}
	}
	return []limiter.Key{k.Key, k.Previous}
}

// KeyOf returns the key that a request has for s, or nil.
func KeyOf(keys []Key, s *key.Spec) *Key {
	for i := range keys {
		if keys[i].Spec == s && !keys[i].Skip {
			return &keys[i]
		}
	}
	return nil
}

// ShadowLimit returns the limit in shadow mode of t, or nil if t is of limits in enforce mode. t has
// no windows if all limits allowed the request while the store was unreachable.
func (a *Admission) ShadowLimit(t *TakenPermit) *Limit {
	if len(t.Claims) == 0 || !t.Claims.Window(0).Of.IsShadow() {
		return nil
	}
	return t.Claims.Window(0).Of
}

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

// find returns the index of the first claim for which is returns true, or -1. Claims are too large to be copied.
func (s ClaimSet) find(is func(i int) bool) int {
	for i := range s {
		if is(i) {
			return i
		}
	}
	return -1
}

// IndexOf returns the index of the first claim on a limit, or -1.
func (s ClaimSet) IndexOf(of *Limit) int {
	return s.find(func(i int) bool { return s.Window(i).Of == of })
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
	return s.find(func(i int) bool { return such(s.Window(i).Of) }) >= 0
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

// A DecidedLimit is a limit with claims of a set, those at From (inclusive) to To (exclusive), and what their outcomes say
// together: allowed and unknown if there are none.
type DecidedLimit struct {
	*Limit
	From, To int
	limiter.Outcome
}

// Decided yields the limits of s, whose claims have these outcomes.
func (s ClaimSet) Decided(outcomes []limiter.Outcome) iter.Seq[DecidedLimit] {
	return func(yield func(DecidedLimit) bool) {
		for from, to := 0, 0; from < len(s); from = to {
			d := DecidedLimit{From: from, Outcome: limiter.Outcome{Allowed: true, Unknown: true}}
			d.Limit, to = s.limitAt(from)
			d.To = to
			if from < len(outcomes) {
				d.Outcome = outcomes[from]
			}
			for i := from + 1; i < min(to, len(outcomes)); i++ {
				merge(&d.Outcome, &outcomes[i])
			}
			if !yield(d) {
				return
			}
		}
	}
}

// Merge adds a claim, behind those on the same limit. Of two rates of one count the lower one decides. It returns an error
// that wraps errCost, and s may not be used, if no unused key has room for both claims, or if they have two
// values.
func (s *ClaimSet) Merge(w *Window, claim *limiter.Claim) error {
	if i := s.Index(claim); i >= 0 {
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
	if w.Name == own.Limit.Name && w.Rate.Count < own.Limit.Rate.Count {
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

// Index returns the index of the claim that has one count with c, or -1: it is under the same key of one window, or of the
// windows of two rates that descriptors have, or counted by the same Redisson limiter.
func (s ClaimSet) Index(c *limiter.Claim) int {
	return s.find(func(i int) bool {
		return s[i].Key == c.Key && s[i].Limit.Name == c.Limit.Name || c.RedissonName != "" && s[i].RedissonName == c.RedissonName
	})
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
		set = &a.Shadow.Claims
	}
	set.Add(windows, &limiter.Claim{Key: u.Key.Key, Cost: u.Cost, Value: u.Value, RedissonName: shared, RedissonFormat: l.RedissonFormat, Source: a.Source})
	if u.Rotates && shared == "" {
		a.BothSecrets = true
		set.Add(windows, &limiter.Claim{Key: u.Key.Previous, Cost: u.Cost, Value: u.PreviousValue, Source: a.Source})
	}
	return nil
}

// Denies reports whether a limit refuses all requests while the store is unreachable.
func (s ClaimSet) Denies() bool {
	return s.AnyLimit(func(l *Limit) bool { return l.OnStoreFailure == config.Deny })
}
