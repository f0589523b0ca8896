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

	// Written by extract.
	exempt       bool              // no limit applies to the request
	claims       claimSet          // claims on limits in enforce mode
	shadows      claimSet          // claims on limits in shadow mode
	shadowErrors []*limit          // limits in shadow mode for which the request has no valid claim
	keepsPermits bool              // no outcome refunds its permits; see keepsPermits
	bothSecrets  bool              // each claim is made twice, under the current and the previous secret
	source       uint32            // identifies the client's network where memory for keys is shared; see limiter.Claim
	idempotent   idempotencyClaims // set by idempotency: the claims that recognize repeated requests

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
	ofShare        sharePermit      // what was taken of this node's share besides; see takeWithinShare
	takenPermits   []takenPermit    // the permits that were taken, with their stores

	settled settlement // set by settle: what is refunded
	err     error      // the error for the log
}

// A keyNamer returns how the log names the key of a claim: the beginning of its hash and, for a
// sensitive key, its masked value.
type keyNamer interface {
	logKey(k limiter.Key) (hash, masked string)
}

// reset clears q for the next request and keeps its allocated memory. It works in place, one slice at
// a time: assigning a new admission would copy it.
func (q *admission) reset() {
	q.route, q.keyNamer = nil, nil
	q.exempt, q.keepsPermits, q.bothSecrets, q.source = false, false, false, 0
	q.claims.reset()
	q.shadows.reset()
	q.shadowErrors = q.shadowErrors[:0]
	q.idempotent.firstUse = nil
	q.idempotent.all = q.idempotent.all[:0]
	q.decision.Allowed, q.decision.Wait, q.decision.At, q.decision.Permit = false, 0, time.Time{}, limiter.Permit{}
	q.decision.Outcomes, q.decision.Repeats = q.decision.Outcomes[:0], nil
	q.decided, q.fallback, q.isRepeat = false, "", false
	q.ofShare = sharePermit{}
	q.waited, q.waitTime, q.banned = false, 0, false
	q.shadowSets, q.shadowsTaken = q.shadowSets[:0], false
	q.shadowRefusals = q.shadowRefusals[:0]
	q.takenPermits = q.takenPermits[:0]
	q.settled.pending = q.settled.pending[:0]
	q.settled.refunded, q.err, q.admitter = false, nil, nil
	q.settled.started = q.settled.started[:0]
}

// isRefused reports whether the limits have refused the request: the stage that decided has returned
// errRefused.
func (q *admission) isRefused() bool { return q.decided && !q.decision.Allowed }

// firstRefused returns the index of the first claim that a limit refused.
func (q *admission) firstRefused() (i int, found bool) {
	if q.decision.Allowed {
		return -1, false
	}
	for i := range q.decision.Outcomes {
		if !q.decision.Outcomes[i].Allowed {
			return i, true
		}
	}
	return -1, false
}

// fail records an error for the log. It is joined with earlier errors.
func (q *admission) fail(err error) {
	switch {
	case err == nil:
	case q.err == nil:
		q.err = err
	default:
		q.err = errors.Join(q.err, err)
	}
}
