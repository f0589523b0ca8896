package limit

import (
	"errors"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
)

// An OtherRule is what responses of a route do to a limit of another route for the key of a request: they reset its cooldown,
// or return what it has taken (return_on). The limit notes its permits under the key (limiter.Limit.Noted).
type OtherRule struct {
	Key     *key.Spec // as the route whose responses decide reads it
	Status  config.Statuses
	Of      *Limit
	returns [][]*limiter.Limit // the windows of the limit, also those of keys with rates of their own; then those of step_up
}

// IsReturn reports whether r returns permits.
func (r *OtherRule) IsReturn() bool { return len(r.returns) > 0 }

// Link adds to each of the routes what its responses do to limits, by the names of the routes. A limit with mode off has taken
// nothing, and has no cooldown to reset.
func Link(limits []*Limit, made map[string]*Route) {
	for _, l := range limits {
		if r := l.Reset; r != nil {
			made[r.Route].Others = append(made[r.Route].Others, OtherRule{Key: r.Key, Status: r.Status, Of: l})
		}
	}
	for _, l := range limits {
		if r := l.Return; r != nil {
			made[r.Route].Others = append(made[r.Route].Others, OtherRule{r.Key, r.Status, l, l.noted()})
		}
	}
}

// settlesOthers reports whether a response may decide about limits of other routes; see settleOthers.
func (a *Admission) settlesOthers() bool {
	return len(a.Route.Others) > 0 && !a.Exempt && !a.Repeated && !a.KeepsPermits
}

// SettleOthers starts what the status of a response decides about limits of other routes. Nothing is decided by
// a request that was not counted: otherwise a client that may send any number of such requests could
// reset cooldowns and return permits at will. Nor is it after a method that servers answer by
// themselves (keepsPermits).
func (a *Admitter) SettleOthers(q *Admission, keys []Key, status int) {
	if !q.settlesOthers() {
		return
	}
	for i := range q.Route.Others {
		r := &q.Route.Others[i]
		switch k := KeyOf(keys, r.Key); {
		case k == nil || !r.Status.Has(status):
		case r.IsReturn():
			a.returnPermits(q, r, k)
		default:
			a.resetCooldown(q, r.Of, k)
		}
	}
}

// returnPermits starts to return the permits that the limit of r has noted under k. What this node granted
// while the store was unreachable is noted here too, and in the store since that was told of it. If the store is
// unreachable now, its permits stay taken, until another response returns them or they expire.
func (a *Admitter) returnPermits(q *Admission, r *OtherRule, k *Key) {
	subjects := []limiter.Key{k.Key}
	if k.Previous != k.Key && k.Previous != (limiter.Key{}) { // of a Replay both may be one
		subjects = append(subjects, k.Previous)
	}
	for _, subject := range subjects {
		wait := a.StartReturn(r, subject)
		q.Settled.start("return permits", func() error {
			_, err := wait()
			return err
		})
	}
}

// StartReturn starts to return the permits of one subject on this node and in the store.
func (a *Admitter) StartReturn(r *OtherRule, subject limiter.Key) (wait func() (int, error)) {
	returned, inStore := 0, []func() (int, error){}
	for _, limits := range r.returns {
		here, err := a.Fallback.returnHere(limits, subject)
		if err != nil {
			return func() (int, error) { return 0, err }
		}
		returned += here
		inStore = append(inStore, a.Store.StartReturn(limits, subject))
	}
	wrong := a.countWrong(r.Of, subject)
	return func() (int, error) {
		var failed error
		counted := 0 // without those of step_up
		for i, wait := range inStore {
			n, err := wait()
			returned, failed = returned+n, errors.Join(failed, err)
			if i == 0 {
				counted = n
			}
		}
		failed = errors.Join(failed, wrong())
		a.metrics.Returns.WithLabelValues(r.Of.Route, r.Of.Name).Add(float64(returned))
		a.metrics.sends.WithLabelValues(r.Of.Route, r.Of.Name, "verified").Add(float64(counted))
		a.CountSends(r.Of.Sends.AllClaims(sends.Returned, int64(counted)))
		return returned, failed
	}
}
