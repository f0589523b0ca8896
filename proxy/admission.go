package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An admission is the part of a request that concerns the limits of its route: the claims and the
// decision about them. The stages that call a store take an admission instead of the exchange,
// except early and new keys.
type admission struct {
	route    *route   // set by match
	keyNamer keyNamer // set by extract; names keys in the log and in events

	// Written by extract.
	exempt       bool              // no limit applies to the request
	claims       claimSet          // claims on limits in enforce mode
	shadows      claimSet          // claims on limits in shadow mode
	shadowErrors []*limit          // limits in shadow mode for which the request has no valid claim
	bothSecrets  bool              // each claim is made twice, under the current and the previous secret
	source       uint32            // identifies the client's network where memory for keys is shared; see limiter.Claim
	idempotent   idempotencyClaims // set by idempotency: the claims that recognize repeated requests

	// Written by admit.
	decision       limiter.Decision
	decided        bool          // decision is valid for claims
	fallback       string        // the policy that decided while the store was unreachable
	isRepeat       bool          // the request repeats one that was counted
	waited         bool          // the request waited for a permit
	waitTime       time.Duration // how long it waited
	banned         bool          // this refusal started a ban
	shadowRefusals []refusal     // what limits in shadow mode would have refused
	takenPermits   []takenPermit // the permits that were taken, with their stores

	settled settlement // set by settle: what is refunded
	err     error      // the error for the log
}

// A keyNamer returns how the log names the key of a claim: the beginning of its hash and, for a
// sensitive key, its masked value.
type keyNamer interface {
	logKey(k limiter.Key) (hash, masked string)
}

func (q *admission) reset() {
	asks, shadows, shadowErrors, repeat := q.claims.empty(), q.shadows.empty(), q.shadowErrors[:0], q.idempotent.all[:0]
	outcomes, shadowed, takings, back := q.decision.Outcomes[:0], q.shadowRefusals[:0], q.takenPermits[:0], q.settled.pending[:0]
	*q = admission{}
	q.claims, q.shadows, q.shadowErrors, q.idempotent.all = asks, shadows, shadowErrors, repeat
	q.decision.Outcomes, q.shadowRefusals, q.takenPermits, q.settled.pending = outcomes, shadowed, takings, back
}

// firstRefused returns the index of the first claim that a limit refused.
func (q *admission) firstRefused() (i int, found bool) {
	i = slices.IndexFunc(q.decision.Outcomes, func(o limiter.Outcome) bool { return !o.Allowed })
	return i, i >= 0 && !q.decision.Allowed
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
