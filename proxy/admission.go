package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// An admission is what a request asks of the limits of its route, and what comes of it.
// It is all that the stages which talk to a store know of a request, but for early and
// new keys: they take an admission, not an exchange.
type admission struct {
	route *route   // match
	names keyNamer // extract: how people are told of its keys

	// What extract has found to ask.
	exempt       bool     // no limit is asked about the request
	claims       claimSet // of limits that refuse
	shadows      claimSet // of limits in shadow mode
	shadowErrors []*limit // in shadow mode, and would have refused before any store
	bothSecrets  bool     // all is asked twice, under the secret in use and the one before
	source       uint32   // stands for the client's network where room for keys is shared
	repeat       repeat   // idempotency: what its repeats are known by

	// What the limits have said.
	decision limiter.Decision
	decided  bool          // it is about asks
	fallback string        // the policy that decided while the store could not
	repeated bool          // the request repeats one that was counted
	waited   bool          // it waited for a permit
	waitTook time.Duration // for so long
	banned   bool          // this refusal was one too many
	shadowed []refusal     // what limits in shadow mode would have refused
	taken    []takenPermit // what was taken, and of whom

	settled settlement // settle: what is given back
	err     error      // for the log
}

// A keyNamer says how people are told of the key of a claim: the beginning of its hash,
// and, of a sensitive one, what is left of it when it is masked.
type keyNamer interface {
	logKey(k limiter.Key) (hash, masked string)
}

func (q *admission) reset() {
	asks, shadows, shadowErrors, repeat := q.claims.none(), q.shadows.none(), q.shadowErrors[:0], q.repeat.all[:0]
	outcomes, shadowed, takings, back := q.decision.Outcomes[:0], q.shadowed[:0], q.taken[:0], q.settled.back[:0]
	*q = admission{}
	q.claims, q.shadows, q.shadowErrors, q.repeat.all = asks, shadows, shadowErrors, repeat
	q.decision.Outcomes, q.shadowed, q.taken, q.settled.back = outcomes, shadowed, takings, back
}

// refusing is the first claim that a limit refused.
func (q *admission) refusing() (i int, found bool) {
	i = slices.IndexFunc(q.decision.Outcomes, func(o limiter.Outcome) bool { return !o.Allowed })
	return i, i >= 0 && !q.decision.Allowed
}

// fail notes for the log what went wrong, beside what did before.
func (q *admission) fail(err error) {
	switch {
	case err == nil:
	case q.err == nil:
		q.err = err
	default:
		q.err = errors.Join(q.err, err)
	}
}
