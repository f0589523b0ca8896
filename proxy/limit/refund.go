package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/sends"
)

// SettleTimeout bounds the duration of a refund.
const SettleTimeout = time.Second

// A TakenPermit is a permit with its claims and the store that granted it.
type TakenPermit struct {
	Store    limiter.AdminStore
	Claims   ClaimSet
	Permit   limiter.Permit
	lease    *lease          // nil unless some claims are concurrent
	firstUse []limiter.Claim // the claim on the first use of an idempotency key; refunded only with all others

	released bool   // the concurrent permits have been refunded, or are held by their lease
	refunded []bool // by claim: its refund was started; nil if none was
}

// isByFallback reports whether the local store has granted t, while the shared one was unreachable.
func (t *TakenPermit) isByFallback() bool {
	_, is := t.Store.(reporting)
	return is
}

// addTaken adds a permit that store granted for set. firstUse may be nil.
func (a *Admission) addTaken(store limiter.AdminStore, set ClaimSet, p limiter.Permit, firstUse []limiter.Claim) {
	a.TakenPermits = append(a.TakenPermits, TakenPermit{Store: store, Claims: set, Permit: p, firstUse: firstUse, lease: startLease(store, set, p)})
}

// StopRenewing stops the renewals of all concurrent permits of the request.
func (a *Admission) StopRenewing() {
	for i := range a.TakenPermits {
		if l := a.TakenPermits[i].lease; l != nil {
			l.end()
		}
	}
}

// A settlement is the state of refunding a request's permits.
type settlement struct {
	pending  []limiter.Claim // claims to refund, of one taken permit
	Refunded bool            // something was refunded
	started  []startedCall   // calls whose replies nobody has waited for
	Used     string          // what was used of what was reserved, for the log
}

// A startedCall is a call to the store that was started before the head of the response was sent.
type startedCall struct {
	what  string // refund or reset cooldown
	since time.Time
	wait  func() error
}

// A Outcome is what settling needs to know of what became of a request.
type Outcome struct {
	Unsent      bool // it was not forwarded, although its route has an upstream
	Refunded    bool // the upstream asked for that, or failed in a way for which the route refunds its requests
	Unprocessed bool // the connection to its target failed
	Status      int  // 0 if there was none

	Used *Used // nil if the response was not asked what the request has used
}

// A refundRule is what is known of the outcome of a request when permits are refunded.
type refundRule struct {
	all bool    // all permits are refunded
	of  Outcome // decides about the limits that do not count every outcome
}

// refundRule returns the rule for an outcome. Of a request that keeps its permits the outcome is taken
// for unknown, unless it was not forwarded.
func (a *Admission) refundRule(o Outcome) refundRule {
	if a.KeepsPermits {
		return refundRule{all: a.refundsAll(o)}
	}
	return refundRule{a.refundsAll(o), o}
}

// applies reports whether the permits of l are refunded: none of those that are taken ahead.
func (r refundRule) applies(l *Limit) bool { return l.Ahead == 0 && (r.all || l.refunds(r.of)) }

// Settle refunds the permits of an admitted request according to its outcome. All are refunded if
// the request was not forwarded, or if the route refunds this outcome. Otherwise only those of
// limits that do not count this outcome are. Concurrent permits are always released, because their
// request has ended. With an unknown outcome the request stays counted, because the upstream may
// have processed it. A refund is not cancelled when the client disconnects. Limits in shadow mode
// are settled like others. What settleHead has started is not repeated.
func (a *Admitter) Settle(ctx context.Context, q *Admission, o Outcome) {
	rule := q.refundRule(o)
	q.StopRenewing() // what is refunded must not count again
	if len(q.TakenPermits) > 0 && (len(q.Route.settling) > 0 || q.refundsAll(o)) {
		for i := range q.TakenPermits {
			t := &q.TakenPermits[i]
			a.collectRefunds(q, t, rule)
			if !t.released {
				q.Settled.pending = appendConcurrent(q.Settled.pending, t.Claims)
			}
			a.refund(q, t)
		}
		a.refundShadowNotes(q, rule)
	}
	if o.Used != nil && !q.KeepsPermits && len(q.TakenPermits) > 0 {
		a.settleUsage(ctx, q, rule, o.Used)
	}
	for _, c := range q.Settled.started {
		err := c.wait()
		a.metrics.observeStoreCall(strings.Fields(c.what)[0], time.Since(c.since), err)
		if err != nil {
			q.Fail(fmt.Errorf("%s: %w", c.what, err))
		}
	}
	clear(q.Settled.started)
	q.Settled.started = q.Settled.started[:0]
}

// NeedsRefund reports whether settling a needs a call to a store, or waits for one.
func (a *Admission) NeedsRefund(o Outcome) bool {
	rule := a.refundRule(o)
	return len(a.Settled.started)+len(a.Sends) > 0 || slices.ContainsFunc(a.TakenPermits, func(t TakenPermit) bool {
		return o.Used != nil && t.Claims.AnyLimit((*Limit).reserves) || t.Claims.AnyLimit(rule.applies) || t.hasConcurrent()
	})
}

// SettleHead starts the refunds and cooldown resets that the head of a response decides, before it is
// sent: a client that acts on the response is not refused because of the request. Nothing waits for
// the reply of the store. What the head does not decide is left to settle.
func (a *Admitter) SettleHead(q *Admission, o Outcome) {
	rule := q.refundRule(o)
	for i := range q.TakenPermits {
		t := &q.TakenPermits[i]
		a.collectRefunds(q, t, rule)
		if len(q.Settled.pending) > 0 {
			q.Settled.start("refund", t.Store.StartRefund(q.Settled.pending, t.Permit))
		}
	}
	a.refundShadowNotes(q, rule)
}

// start records a call that was started.
func (s *settlement) start(what string, wait func() error) {
	s.started = append(s.started, startedCall{what, time.Now(), wait})
}

// collectRefunds sets q.settled.pending to the claims of one taken permit that the rule refunds and
// that have not been refunded, except concurrent ones.
func (a *Admitter) collectRefunds(q *Admission, t *TakenPermit, rule refundRule) {
	q.Settled.pending = q.Settled.pending[:0]
	var last *Limit
	for i := range t.Claims {
		c, of := &t.Claims[i], t.Claims.Window(i).Of // a claim is too large to copy
		if concurrent(c) || !rule.applies(of) || t.refunded != nil && t.refunded[i] {
			continue
		}
		if t.refunded == nil {
			t.refunded = make([]bool, len(t.Claims))
		}
		t.refunded[i] = true
		q.Settled.pending = append(q.Settled.pending, *c)
		if of != last && !t.Permit.IsZero() { // one that shadow mode would have refused has taken nothing
			q.Settled.Refunded = true
			a.metrics.Refunds.WithLabelValues(of.Route, of.Name).Inc()
			if counter := t.Claims.Window(i).sends(); counter != nil && !t.isByFallback() { // countTaken has counted it
				q.Sends = append(q.Sends, counter.Claims(sends.Refunded, c.Key, c.Cost)...)
				a.metrics.sends.WithLabelValues(of.Route, of.Name, sends.Refunded.String()).Inc()
			}
			last = of
		}
	}
	if rule.all {
		q.Settled.pending = append(q.Settled.pending, t.firstUse...)
		t.firstUse = nil
	}
}

// refund refunds q.settled.pending, which are claims of t.
func (a *Admitter) refund(q *Admission, t *TakenPermit) {
	if len(q.Settled.pending) == 0 {
		return
	}
	if err := a.metrics.measure("refund", func() error { return t.Store.StartRefund(q.Settled.pending, t.Permit)() }); err != nil {
		q.Fail(fmt.Errorf("refund: %w", err))
	}
}

// AddRefunds adds the permits that will be refunded for this status to the remaining permits of the
// decision, because the rate limit fields are sent before the refund. Limits on distinct values are
// excluded, because the value may have been counted before; so are concurrent limits, whose permits
// are held until the end of the response. A failure after the header, such as cut of refund_on, can
// no longer be reported.
func (a *Admission) AddRefunds(o Outcome) {
	rule := a.refundRule(o)
	if a.KeepsPermits || !rule.all && len(a.Route.settling) == 0 {
		return // as most
	}
	for i := range a.Decision.Outcomes {
		c := &a.Claims[i]
		if !rule.applies(a.Claims.Window(i).Of) || concurrent(c) || c.Limit.Algorithm.HasValues() {
			continue
		}
		left := &a.Decision.Outcomes[i]
		left.Remaining, left.Wait = min(left.Remaining+c.Cost, c.Limit.Capacity()), 0
	}
}

// refundsAll reports whether all permits of the request are refunded.
func (a *Admission) refundsAll(o Outcome) bool {
	return o.Unsent || !a.KeepsPermits && (o.Refunded || a.Route.RefundOn.Status.Has(o.Status))
}

// refunds reports whether the outcome is known and the limit does not count it. If the connection
// to the target failed, the request is known not to be processed.
func (l *Limit) refunds(o Outcome) bool {
	return l.Count != nil && (o.Unprocessed || o.Status != 0 && !l.Count.Status.Has(o.Status))
}

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
	for _, subject := range k.all() {
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
