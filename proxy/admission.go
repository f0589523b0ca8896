package proxy

import (
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// An admission is the part of a request that concerns the limits of its route: the claims and the
// decision about them. The stages that call a store take an admission instead of the exchange,
// except early and new keys.
type admission struct {
	admitter *admitter   // set by serve
	route    *limitRoute // set by match
	keyNamer keyNamer    // set by extract; names keys in the log and in events
	stripe   int         // where the request is counted; set by serve
	isShared bool        // it decides for several descriptors, which count what was sent by themselves
	due      time.Time   // when the decision must have been made; zero if the store's timeout alone bounds it

	// Written by extract.
	exempt       bool            // no limit applies to the request
	claims       claimSet        // claims on limits in enforce mode
	shadows      claimSet        // claims on limits in shadow mode
	shadowErrors []*limit        // limits in shadow mode for which the request has no valid claim
	keepsPermits bool            // no outcome refunds its permits; see keepsPermits
	bothSecrets  bool            // each claim is made twice, under the current and the previous secret
	source       uint32          // identifies the client's network where memory for keys is shared; see limiter.Claim
	firstUse     []limiter.Claim // set by idempotency: the claim on the first use of the idempotency key; empty without a key
	solver       solver          // set by extract: finds the tokens of challenges

	// Written by admit.
	decision       limiter.Decision
	decided        bool              // decision is valid for claims
	fallback       string            // the policy that decided while the store was unreachable
	isRepeat       bool              // the request repeats one that was counted
	waited         bool              // the request waited for a permit
	waitTime       time.Duration     // how long it waited
	banned         bool              // this refusal started a ban
	asked          claimSet          // all claims that are taken in one step, if there are others than claims; see ask
	shadowOutcomes []limiter.Outcome // of shadows, if the call that allowed the request has decided them
	shadowRefusals []refusal         // what limits in shadow mode would have refused
	steps          *stepsUp          // nil unless limits with step_up have refused the request; see stepUp
	shadowNotes    []shadowNote      // what is noted of those for which permits would be returned
	sends          []limiter.Claim   // what counts the request once it has ended, see countSends
	ofShare        sharePermit       // what was taken of this node's share besides; see takeWithinShare
	takenPermits   []takenPermit     // the permits that were taken, with their stores

	settled settlement // set by settle: what is refunded
	err     error      // the error for the log
}

// A keyNamer returns how the log names the key of a claim: the beginning of its hash and, for a
// sensitive key, its masked value.
type keyNamer interface {
	logKey(k limiter.Key) (hash, masked string)
}

// reset makes a the admission of no request, with the memory that it names. A composite literal with
// this memory would be made on the stack and copied.
func (a *admission) reset() {
	claims, shadows, asked, errs := a.claims[:0], a.shadows[:0], a.asked[:0], a.shadowErrors[:0]
	outcomes, beside := a.decision.Outcomes[:0], a.shadowOutcomes[:0]
	refusals, notes, sends, taken := a.shadowRefusals[:0], a.shadowNotes[:0], a.sends[:0], a.takenPermits[:0]
	pending, started := a.settled.pending[:0], a.settled.started[:0]
	*a = admission{}
	a.claims, a.shadows, a.asked, a.shadowErrors = claims, shadows, asked, errs
	a.decision.Outcomes, a.shadowOutcomes = outcomes, beside
	a.shadowRefusals, a.shadowNotes, a.sends, a.takenPermits = refusals, notes, sends, taken
	a.settled.pending, a.settled.started = pending, started
}

// isRefused reports whether the limits have refused the request: the stage that decided has returned
// errRefused.
func (a *admission) isRefused() bool { return a.decided && !a.decision.Allowed }

// firstRefused returns the index of the first claim that a limit refused.
func (a *admission) firstRefused() (i int, found bool) {
	if a.decision.Allowed {
		return -1, false
	}
	for i := range a.decision.Outcomes {
		if !a.decision.Outcomes[i].Allowed {
			return i, true
		}
	}
	return -1, false
}

// fail records an error for the log. It is joined with earlier errors.
func (a *admission) fail(err error) {
	switch {
	case err == nil:
	case a.err == nil:
		a.err = err
	default:
		a.err = errors.Join(a.err, err)
	}
}

// A refusal is a rate that refused the request, or would have in shadow mode.
type refusal struct {
	window *window
	key    limiter.Key
	banned bool
	wait   time.Duration
}

// refusal returns the refusal of claim i.
func (a *admission) refusal(i int) refusal {
	return refusal{a.claims.window(i), a.claims[i].Key, a.decision.Outcomes[i].Banned, a.decision.Outcomes[i].Wait}
}

// An extractedKey is the key of the request for one key.Spec.
type extractedKey struct {
	spec *key.Spec
	limiter.Key
	previous limiter.Key // under the previous secret; zero if there is none
	unkeyed  limiter.Key // without any secret; only set where new keys are limited, and kept in this process
	text     string      // the key in the names of shared Redisson limiters
	number   key.Number  // zero if the key is no phone number
	skip     bool        // the key is missing, and limits on it do not apply
	masked   string      // the masked value, for the log; only of a sensitive key
}

// keyOf returns the key that a request has for s, or nil.
func keyOf(keys []extractedKey, s *key.Spec) *extractedKey {
	for i := range keys {
		if keys[i].spec == s && !keys[i].skip {
			return &keys[i]
		}
	}
	return nil
}

// shadowLimit returns the limit in shadow mode of t, or nil if t is of limits in enforce mode. t has
// no windows if all limits allowed the request while the store was unreachable.
func (a *admission) shadowLimit(t *takenPermit) *limit {
	if len(t.claims) == 0 {
		return nil
	}
	if of := t.claims.window(0).of; of.Mode == config.Shadow {
		return of
	}
	return nil
}

// canWait reports whether each limit that refuses lets requests wait for as long as necessary.
func (a *admission) canWait() bool {
	for i, o := range a.decision.Outcomes {
		if !o.Allowed && o.Wait > a.claims.window(i).of.Wait {
			return false
		}
	}
	return true
}
