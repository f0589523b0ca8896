package limit

import (
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/reuse"
)

// An Admission is the part of a request that concerns the limits of its route: the claims and the
// Decision about them. The stages that call a store take an admission instead of the exchange,
// except early and new keys.
type Admission struct {
	Admitter *Admitter // set by serve
	Route    *Route    // set by match
	KeyNamer keyNamer  // set by extract; names keys in the log and in events
	Stripe   int       // where the request is counted; set by serve
	IsShared bool      // it decides for several descriptors, which count what was sent by themselves
	Due      time.Time // when the decision must have been made; zero if the store's timeout alone bounds it

	// Written by extract.
	Exempt       bool            // no limit applies to the request
	Claims       ClaimSet        // claims on limits in enforce mode
	Shadows      ClaimSet        // claims on limits in shadow mode
	ShadowErrors []*Limit        // limits in shadow mode for which the request has no valid claim
	KeepsPermits bool            // no outcome refunds its permits; see keepsPermits
	BothSecrets  bool            // each claim is made twice, under the current and the previous secret
	Source       uint32          // identifies the client's network where memory for keys is shared; see limiter.Claim
	FirstUse     []limiter.Claim // set by idempotency: the claim on the first use of the idempotency key; empty without a key
	Solver       solver          // set by extract: finds the tokens of challenges

	// Written by admit.
	Decision       limiter.Decision
	Decided        bool              // decision is valid for claims
	Fallback       string            // the policy that decided while the store was unreachable
	IsRepeat       bool              // the request repeats one that was counted
	Waited         bool              // the request waited for a permit
	WaitTime       time.Duration     // how long it waited
	Banned         bool              // this refusal started a ban
	asked          ClaimSet          // all claims that are taken in one step, if there are others than claims; see ask
	shadowOutcomes []limiter.Outcome // of shadows, if the call that allowed the request has decided them
	ShadowRefusals []Refusal         // what limits in shadow mode would have refused
	Steps          *stepsUp          // nil unless limits with step_up have refused the request; see stepUp
	shadowNotes    []shadowNote      // what is noted of those for which permits would be returned
	Sends          []limiter.Claim   // what counts the request once it has ended, see countSends
	ofShare        SharePermit       // what was taken of this node's share besides; see takeWithinShare
	TakenPermits   []TakenPermit     // the permits that were taken, with their stores

	Settled settlement // set by settle: what is refunded
	Err     error      // the error for the log
}

// A keyNamer returns how the log names the key of a claim: the beginning of its hash and, for a
// sensitive key, its masked value.
type keyNamer interface {
	LogKey(k limiter.Key) (hash, masked string)
}

// Reset makes a the admission of no request, with the memory that it names. A composite literal with
// this memory would be made on the stack and copied.
func (a *Admission) Reset() {
	claims, shadows, asked, errs := reuse.Memory(a.Claims), reuse.Memory(a.Shadows), reuse.Memory(a.asked), reuse.Memory(a.ShadowErrors)
	outcomes, beside := reuse.Memory(a.Decision.Outcomes), reuse.Memory(a.shadowOutcomes)
	refusals, notes, sends, taken := reuse.Memory(a.ShadowRefusals), reuse.Memory(a.shadowNotes), reuse.Memory(a.Sends), reuse.Memory(a.TakenPermits)
	pending, started := reuse.Memory(a.Settled.pending), reuse.Memory(a.Settled.started)
	*a = Admission{}
	a.Claims, a.Shadows, a.asked, a.ShadowErrors = claims, shadows, asked, errs
	a.Decision.Outcomes, a.shadowOutcomes = outcomes, beside
	a.ShadowRefusals, a.shadowNotes, a.Sends, a.TakenPermits = refusals, notes, sends, taken
	a.Settled.pending, a.Settled.started = pending, started
}

// IsRefused reports whether the limits have refused the request: the stage that decided has returned
// errRefused.
func (a *Admission) IsRefused() bool { return a.Decided && !a.Decision.Allowed }

// FirstRefused returns the index of the first claim that a limit refused.
func (a *Admission) FirstRefused() (i int, found bool) {
	if a.Decision.Allowed {
		return -1, false
	}
	for i := range a.Decision.Outcomes {
		if !a.Decision.Outcomes[i].Allowed {
			return i, true
		}
	}
	return -1, false
}

// Fail records an error for the log. It is joined with earlier errors.
func (a *Admission) Fail(err error) {
	switch {
	case err == nil:
	case a.Err == nil:
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
	if len(t.Claims) == 0 {
		return nil
	}
	if of := t.Claims.Window(0).Of; of.Mode == config.Shadow {
		return of
	}
	return nil
}

// CanWait reports whether each limit that refuses lets requests wait for as long as necessary.
func (a *Admission) CanWait() bool {
	for i, o := range a.Decision.Outcomes {
		if !o.Allowed && o.Wait > a.Claims.Window(i).Of.Wait {
			return false
		}
	}
	return true
}
