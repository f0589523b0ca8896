package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/sends"
)

// settleTimeout bounds the duration of a refund.
const settleTimeout = time.Second

// A takenPermit is a permit with its claims and the store that granted it.
type takenPermit struct {
	store    limiter.AdminStore
	claims   claimSet
	permit   limiter.Permit
	lease    *lease          // nil unless some claims are concurrent
	firstUse []limiter.Claim // the claim on the first use of an idempotency key; refunded only with all others

	released bool   // the concurrent permits have been refunded, or are held by their lease
	refunded []bool // by claim: its refund was started; nil if none was
}

// isByFallback reports whether the local store has granted t, while the shared one was unreachable.
func (t *takenPermit) isByFallback() bool {
	_, is := t.store.(reporting)
	return is
}

// addTaken adds a permit that store granted for set. firstUse may be nil.
func (a *admission) addTaken(store limiter.AdminStore, set claimSet, p limiter.Permit, firstUse []limiter.Claim) {
	a.takenPermits = append(a.takenPermits, takenPermit{store: store, claims: set, permit: p, firstUse: firstUse, lease: startLease(store, set, p)})
}

// stopRenewing stops the renewals of all concurrent permits of the request.
func (a *admission) stopRenewing() {
	for i := range a.takenPermits {
		if l := a.takenPermits[i].lease; l != nil {
			l.end()
		}
	}
}

// A settlement is the state of refunding a request's permits.
type settlement struct {
	pending  []limiter.Claim // claims to refund, of one taken permit
	refunded bool            // something was refunded
	started  []startedCall   // calls whose replies nobody has waited for
}

// A startedCall is a call to the store that was started before the head of the response was sent.
type startedCall struct {
	what  string // refund or reset cooldown
	since time.Time
	wait  func() error
}

// A starter is a store over a network whose refunds and resets are effective for later calls of this
// process as soon as they are started; wait returns their result. See redisstore.Store.
type starter interface {
	StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error)
	StartReset(claims []limiter.Claim) (wait func() error)
}

// startRefund starts a refund, and makes it if the store is in memory.
func startRefund(store limiter.Store, claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	if s, ok := store.(starter); ok {
		return s.StartRefund(claims, p)
	}
	err := store.Refund(context.Background(), claims, p)
	return func() error { return err }
}

// startReset starts a reset, and makes it if the store is in memory.
func startReset(store limiter.AdminStore, claims []limiter.Claim) (wait func() error) {
	if s, ok := store.(starter); ok {
		return s.StartReset(claims)
	}
	err := store.Reset(context.Background(), claims)
	return func() error { return err }
}

// A settledOutcome is what settling needs to know of what became of a request.
type settledOutcome struct {
	unsent      bool // it was not forwarded, although its route has an upstream
	refunded    bool // the upstream asked for that, or failed in a way for which the route refunds its requests
	unprocessed bool // the connection to its target failed
	status      int  // 0 if there was none
}

// A refundRule is what is known of the outcome of a request when permits are refunded.
type refundRule struct {
	all bool           // all permits are refunded
	of  settledOutcome // decides about the limits that do not count every outcome
}

// refundRule returns the rule for an outcome. Of a request that keeps its permits the outcome is taken
// for unknown, unless it was not forwarded.
func (a *admission) refundRule(o settledOutcome) refundRule {
	if a.keepsPermits {
		return refundRule{all: a.refundsAll(o)}
	}
	return refundRule{a.refundsAll(o), o}
}

// applies reports whether the permits of l are refunded.
func (r refundRule) applies(l *limit) bool { return r.all || l.refunds(r.of) }

// settle refunds the permits of an admitted request according to its outcome. All are refunded if
// the request was not forwarded, or if the route refunds this outcome. Otherwise only those of
// limits that do not count this outcome are. Concurrent permits are always released, because their
// request has ended. With an unknown outcome the request stays counted, because the upstream may
// have processed it. A refund is not cancelled when the client disconnects. Limits in shadow mode
// are settled like others. What settleHead has started is not repeated.
func (a *admitter) settle(ctx context.Context, q *admission, o settledOutcome) {
	if len(q.takenPermits) > 0 && (q.route.settles || q.refundsAll(o)) {
		rule := q.refundRule(o)
		for i := range q.takenPermits {
			t := &q.takenPermits[i]
			a.collectRefunds(q, t, rule)
			for j := range t.claims {
				if c := &t.claims[j]; concurrent(c) && !t.released {
					q.settled.pending = append(q.settled.pending, *c)
				}
			}
			a.refund(ctx, q, t)
		}
		a.refundShadowNotes(q, rule)
	}
	for _, c := range q.settled.started {
		err := c.wait()
		a.metrics.observeStoreCall(strings.Fields(c.what)[0], time.Since(c.since), err)
		if err != nil {
			q.fail(fmt.Errorf("%s: %w", c.what, err))
		}
	}
	clear(q.settled.started)
	q.settled.started = q.settled.started[:0]
}

// needsRefund reports whether settling a needs a call to a store, or waits for one.
func (a *admission) needsRefund(o settledOutcome) bool {
	if len(a.settled.started)+len(a.sends) > 0 {
		return true
	}
	rule := a.refundRule(o)
	for i := range a.takenPermits {
		t := &a.takenPermits[i]
		if t.claims.anyLimit(rule.applies) || t.hasConcurrent() {
			return true
		}
	}
	return false
}

// settleHead starts the refunds and cooldown resets that the head of a response decides, before it is
// sent: a client that acts on the response is not refused because of the request. Nothing waits for
// the reply of the store. What the head does not decide is left to settle.
func (a *admitter) settleHead(q *admission, o settledOutcome) {
	rule := q.refundRule(o)
	for i := range q.takenPermits {
		t := &q.takenPermits[i]
		a.collectRefunds(q, t, rule)
		if len(q.settled.pending) > 0 {
			q.settled.start("refund", startRefund(t.store, q.settled.pending, t.permit))
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
func (a *admitter) collectRefunds(q *admission, t *takenPermit, rule refundRule) {
	q.settled.pending = q.settled.pending[:0]
	var last *limit
	for i := range t.claims {
		c, of := &t.claims[i], t.claims.window(i).of // a claim is too large to copy
		if concurrent(c) || !rule.applies(of) || t.refunded != nil && t.refunded[i] {
			continue
		}
		if t.refunded == nil {
			t.refunded = make([]bool, len(t.claims))
		}
		t.refunded[i] = true
		q.settled.pending = append(q.settled.pending, *c)
		if of != last && !t.permit.IsZero() { // one that shadow mode would have refused has taken nothing
			q.settled.refunded = true
			a.metrics.refunds.WithLabelValues(of.Route, of.Name).Inc()
			if of.sends != nil && !t.isByFallback() && !t.claims.window(i).isStepUp { // countTaken has counted it
				q.sends = append(q.sends, of.sends.Claims(sends.Refunded, c.Key, c.Cost)...)
				a.metrics.sends.WithLabelValues(of.Route, of.Name, sends.Refunded.String()).Inc()
			}
			last = of
		}
	}
	if rule.all {
		q.settled.pending = append(q.settled.pending, t.firstUse...)
		t.firstUse = nil
	}
}

// refund refunds q.settled.pending, which are claims of t.
func (a *admitter) refund(ctx context.Context, q *admission, t *takenPermit) {
	if len(q.settled.pending) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := a.metrics.measure("refund", func() error { return t.store.Refund(ctx, q.settled.pending, t.permit) }); err != nil {
		q.fail(fmt.Errorf("refund: %w", err))
	}
}

// addRefunds adds the permits that will be refunded for this status to the remaining permits of the
// decision, because the rate limit fields are sent before the refund. Limits on distinct values are
// excluded, because the value may have been counted before; so are concurrent limits, whose permits
// are held until the end of the response. A failure after the header, such as cut of refund_on, can
// no longer be reported.
func (a *admission) addRefunds(o settledOutcome) {
	all := o.refunded || a.route.RefundOn.Status.Has(o.status)
	if a.keepsPermits || !all && !a.route.settles {
		return // as most
	}
	for i := range a.decision.Outcomes {
		c, of := &a.claims[i], a.claims.window(i).of
		if !all && (of.Count == nil || of.Count.Has(o.status)) || concurrent(c) || c.Limit.Algorithm.HasValues() {
			continue
		}
		left := &a.decision.Outcomes[i]
		left.Remaining, left.Wait = min(left.Remaining+c.Cost, c.Limit.Capacity()), 0
	}
}

// refundsAll reports whether all permits of the request are refunded.
func (a *admission) refundsAll(o settledOutcome) bool {
	return o.unsent || !a.keepsPermits && (o.refunded || a.route.RefundOn.Status.Has(o.status))
}

// refunds reports whether the outcome is known and the limit does not count it. If the connection
// to the target failed, the request is known not to be processed.
func (l *limit) refunds(o settledOutcome) bool {
	switch {
	case l.Count == nil:
		return false
	case o.status != 0:
		return !l.Count.Has(o.status)
	}
	return o.unprocessed
}
