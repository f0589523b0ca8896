package proxy

import (
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An admission is the part of a request that concerns the limits of its route: the claims and the
// decision about them. The stages that call a store take an admission instead of the exchange,
// except early and new keys.
type admission struct {
	admitter *admitter // set by serve
	route    *route    // set by match
	keyNamer keyNamer  // set by extract; names keys in the log and in events
	stripe   int       // where the request is counted; set by serve
	isShared bool      // it decides for several descriptors, which count what was sent by themselves
	due      time.Time // when the decision must have been made; zero if the store's timeout alone bounds it

	// Written by extract.
	exempt       bool              // no limit applies to the request
	claims       claimSet          // claims on limits in enforce mode
	shadows      claimSet          // claims on limits in shadow mode
	shadowErrors []*limit          // limits in shadow mode for which the request has no valid claim
	keepsPermits bool              // no outcome refunds its permits; see keepsPermits
	bothSecrets  bool              // each claim is made twice, under the current and the previous secret
	source       uint32            // identifies the client's network where memory for keys is shared; see limiter.Claim
	idempotent   idempotencyClaims // set by idempotency: the claims that recognize repeated requests
	solver       solver            // set by extract: finds the tokens of challenges; nil if the route has none

	// Written by admit.
	decision       limiter.Decision
	decided        bool             // decision is valid for claims
	fallback       string           // the policy that decided while the store was unreachable
	isRepeat       bool             // the request repeats one that was counted
	waited         bool             // the request waited for a permit
	waitTime       time.Duration    // how long it waited
	banned         bool             // this refusal started a ban
	shadowSets     []limiter.Shadow // claims on limits in shadow mode by limit, and the decisions about them
	shadowsTaken   bool             // the call that allowed the request has decided them
	shadowRefusals []refusal        // what limits in shadow mode would have refused
	steps          *stepsUp         // nil unless limits with step_up have refused the request; see stepUp
	shadowNotes    []shadowNote     // what is noted of those for which permits would be returned
	sends          []limiter.Claim  // what counts the request once it has ended, see countSends
	ofShare        sharePermit      // what was taken of this node's share besides; see takeWithinShare
	takenPermits   []takenPermit    // the permits that were taken, with their stores

	settled settlement // set by settle: what is refunded
	err     error      // the error for the log
}

// An idempotencyClaims holds the claims by which repeats of a request are recognized.
type idempotencyClaims struct {
	firstUse []limiter.Claim // the claim on the first use of the idempotency key; empty without a key
	all      []limiter.Claim // all claims that are taken in one step, including first
}

// A keyNamer returns how the log names the key of a claim: the beginning of its hash and, for a
// sensitive key, its masked value.
type keyNamer interface {
	logKey(k limiter.Key) (hash, masked string)
}

// reset makes a the admission of no request, with the memory that it names. A composite literal with
// this memory would be made on the stack and copied.
func (a *admission) reset() {
	claims, shadows, errs, all, outcomes := a.claims.empty(), a.shadows.empty(), a.shadowErrors[:0], a.idempotent.all[:0], a.decision.Outcomes[:0]
	sets, refusals, notes, sends, taken := a.shadowSets[:0], a.shadowRefusals[:0], a.shadowNotes[:0], a.sends[:0], a.takenPermits[:0]
	pending, started := a.settled.pending[:0], a.settled.started[:0]
	*a = admission{}
	a.claims, a.shadows, a.shadowErrors, a.idempotent.all, a.decision.Outcomes = claims, shadows, errs, all, outcomes
	a.shadowSets, a.shadowRefusals, a.shadowNotes, a.sends, a.takenPermits = sets, refusals, notes, sends, taken
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
