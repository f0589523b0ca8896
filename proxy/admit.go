package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

var (
	// errRefused reports that a limit refused the request. The decision is in the admission.
	errRefused = errors.New("refused by a limit")
	// errUndecided reports that the store is unreachable and that a limit of the route refuses all
	// requests in that case.
	errUndecided = errors.New("limits cannot be decided")
)

// An admitter decides by the limits whether a request is allowed. It is shared by all generations.
type admitter struct {
	store    limiter.AdminStore
	timeout  time.Duration // maximum duration of a decision; 0 for a store in memory, which never blocks
	shared   bool          // the store is shared; a call costs a network round trip
	fallback *fallback
	denier   localDenier // nil if the store has no local cache of refusals
	// announcer notifies other nodes of changes; nil if there are no other nodes.
	announcer  announcer
	waitQueue  *limiter.WaitQueue // waits for permits of store
	metrics    *limitMetrics
	nearLimits *nearLimits

	held heldLeases
	late sync.WaitGroup // decisions that nobody waits for any more; see takeInTime
}

// newAdmitter returns an admitter by a store of the given configuration, which so many nodes share.
func newAdmitter(c *config.Config, store limiter.AdminStore, nodes func() int, m *limitMetrics) *admitter {
	a := &admitter{store: store, fallback: newFallback(store, nodes), metrics: m, nearLimits: newNearLimits()}
	a.denier, _ = store.(localDenier)
	a.announcer, _ = store.(announcer)
	if a.fallback.store != nil {
		a.store = mirrored{store, a.fallback}
	}
	if a.shared = c.Store == config.StoreRedis; a.shared {
		a.timeout = c.Redis.Timeout
	}
	a.waitQueue = limiter.NewWaitQueue(store, cmp.Or(a.timeout, settleTimeout)) // refunds by the queue are not recorded elsewhere
	return a
}

// memory returns the counts in this process: those of the store if it is in memory, otherwise of the fallback.
func (a *admitter) memory() interface {
	Keys() (keys int, bytes int64)
} {
	if m, is := a.store.(interface {
		Keys() (keys int, bytes int64)
	}); is {
		return m
	}
	return a.fallback.local
}

// close refunds the permits of held leases, and waits for late decisions.
func (a *admitter) close() {
	a.held.close()
	a.late.Wait()
}

// admit takes all claims of q in one step. It returns errRefused if a limit refused them, and
// errUndecided if the store is unreachable and a limit has on_store_failure: deny. A client that
// disconnects meanwhile is counted anyway. All calls to the store together are bounded by the
// timeout of one decision, except for a request that may wait for a permit: see wait.
func (a *admitter) admit(client context.Context, q *admission) error {
	if len(q.claims)+len(q.shadows)+len(q.shadowErrors) == 0 {
		return nil
	}
	ctx, cancel := a.withTimeoutForAll(client, q)
	defer cancel()
	if len(q.claims) == 0 {
		a.decideShadow(ctx, q)
		return nil
	}
	by, err := a.fallback.decider(q), errStoreUnreachable
	if by != decideByShare {
		err = a.takeAll(ctx, client, q, by)
	}
	if q.isRepeat {
		return nil
	}
	if q.waited { // further calls have their own timeout
		ctx, cancel := a.withTimeout(client)
		defer cancel()
		return a.conclude(ctx, q, by, err)
	}
	return a.conclude(ctx, q, by, err)
}

// conclude does what follows a decision by the given decider, or its error.
func (a *admitter) conclude(ctx context.Context, q *admission, by decider, err error) error {
	store := a.store
	if err != nil && errors.Is(err, limiter.ErrQueueFull) {
		err = nil // the decision is a refusal
	}
	if err != nil {
		if !errors.Is(err, limiter.ErrUnavailable) {
			return err
		}
		q.err = err
		if err := a.fallback.decide(q, a.metrics); err != nil {
			return err
		}
		if q.cannotStepUp() {
			return errUndecided
		}
		store, q.firstUse = reporting{a.fallback.local, a.fallback}, nil
	} else {
		switch {
		case by != decideByBoth:
			a.fallback.record(q)
		case q.decision.Allowed:
			store = a.fallback.both(q) // it has recorded the decision already
		}
		a.nearLimits.record(q)
	}
	q.mergePrevious()
	a.metrics.countDecisions(q.stripe, q.claims, q.decision.Outcomes)
	if q.steps != nil {
		a.metrics.countSteps(q.steps)
	}
	q.decided = true
	if !q.decision.Allowed {
		return a.refuse(ctx, q, store)
	}
	q.addTaken(store, q.claims, q.decision.Permit, q.firstUse)
	if err == nil { // an unreachable store is not called again for the same request
		if !q.isShared {
			a.countTaken(q, q.claims)
		}
		a.decideShadow(ctx, q)
	}
	return nil
}

// refuse does what follows a refusal by the store by: it counts penalties and sets Retry-After.
func (a *admitter) refuse(ctx context.Context, q *admission, by limiter.AdminStore) error {
	a.penalize(ctx, q, by)
	q.shortenRetry()
	return errRefused
}

// withTimeout returns a context with the timeout of one decision. It is not cancelled when the client
// disconnects.
func (a *admitter) withTimeout(client context.Context) (context.Context, context.CancelFunc) {
	if a.timeout == 0 {
		return client, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(client), a.timeout)
}

// withTimeoutForAll returns a context for all store calls of admit. A single call needs no timer of its own:
// the store bounds each call by the timeout of a decision.
func (a *admitter) withTimeoutForAll(client context.Context, q *admission) (context.Context, context.CancelFunc) {
	if !q.due.IsZero() && a.timeout > 0 {
		return context.WithDeadline(context.Background(), q.due) // a store needs none of the client's values
	}
	if a.timeout > 0 && !q.route.waits && len(q.firstUse)+len(q.shadows) == 0 && !q.hasPenalty() {
		return context.Background(), func() {}
	}
	return a.withTimeout(client)
}

// hasPenalty reports whether a refusal of a may have to be counted for a penalty.
func (a *admission) hasPenalty() bool {
	return a.claims.anyLimit(func(l *limit) bool { return l.Penalty != nil })
}

// shortenRetry sets the wait of refusals by concurrent limits to at most one second. A permit of a
// concurrent limit may be released at any moment, long before the lease on which the store bases
// its wait ends.
func (a *admission) shortenRetry() {
	a.decision.Wait = 0
	for i := range a.decision.Outcomes {
		o := &a.decision.Outcomes[i]
		if concurrent(&a.claims[i]) && !o.Banned {
			o.Wait = min(o.Wait, time.Second)
		}
		if !o.Allowed {
			a.decision.Wait = max(a.decision.Wait, o.Wait)
		}
	}
}

// takeAll takes all claims of q from the store.
func (a *admitter) takeAll(ctx, client context.Context, q *admission, by decider) error {
	take := a.take
	if !q.due.IsZero() && a.timeout > 0 {
		take = a.takeInTime
	}
	switch {
	case by == decideByBoth:
		take = a.fallback.takeWithinShare(q, take)
	case q.route.waits && q.due.IsZero():
		take = a.waitInQueue(client, q)
	}
	return a.takeBy(ctx, q, take, a.take)
}

// takeBy takes all claims of q by take, at the rates of step_up if limits refuse them, and free repeats by free.
func (a *admitter) takeBy(ctx context.Context, q *admission, take, free taker) error {
	if len(q.route.tokenFields) == 0 {
		return a.takeOnce(ctx, q, take, free)
	}
	began := time.Now()
	err := a.takeOnce(ctx, q, take, free)
	if err != nil || q.decision.Allowed {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded && a.timeout > 0 { // the calls together are bounded as the first is by the store
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(a.timeout))
		defer cancel()
	}
	return a.stepUp(q, func() error { return a.takeOnce(ctx, q, take, free) })
}

// isRepeat reports whether the request is a repeat that is not counted, which it takes by free.
func (a *admitter) isRepeat(ctx context.Context, q *admission, free taker) (bool, error) {
	if len(q.firstUse) == 0 {
		return false, nil
	}
	var d limiter.Decision
	if err := a.store.Peek(ctx, q.firstUse, &d); err != nil || d.Allowed {
		return false, err
	}
	repeat := []limiter.Claim{{Limit: &q.route.idempotency.repeats, Key: q.firstUse[0].Key, Cost: 1, Source: q.source}}
	if err := free(ctx, repeat, &d); err != nil || !d.Allowed {
		q.firstUse = nil // counted like a request without an idempotency key
		return false, err
	}
	q.isRepeat = true
	q.claims = q.claims[:0]
	q.decision = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: q.decision.Outcomes[:0]}
	return true, nil
}

// takeOnce takes all that q asks for in one step. Of two concurrent requests with the same idempotency key, the second is
// a repeat.
func (a *admitter) takeOnce(ctx context.Context, q *admission, take, free taker) error {
	for isAgain := false; ; isAgain = true {
		if repeated, err := a.isRepeat(ctx, q, free); err != nil || repeated {
			return err
		}
		if isAgain { // it was used a moment ago, and is not now
			q.firstUse = nil
		}
		if isUsed, err := q.ask(ctx, take); err != nil || !isUsed {
			return err
		}
	}
}

// ask takes the claims of a by take, and in the same step the first uses of its idempotency key and tokens, which decide
// with them, and those of each limit in shadow mode as a group. It reports whether the idempotency key has been used.
func (a *admission) ask(ctx context.Context, take taker) (isUsed bool, err error) {
	asked, uses := a.claims, a.firstUse
	if a.steps != nil {
		uses, a.steps.usedTwice = slices.Concat(uses, a.steps.tokens), false
	}
	if len(uses)+len(a.shadows) > 0 {
		asked = append(append(a.asked[:0], a.claims...), uses...).addGroups(a.shadows)
		a.asked = asked
	}
	if err := take(ctx, asked, &a.decision); err != nil {
		return false, err
	}
	n := min(len(a.claims), len(a.decision.Outcomes))
	beside := a.decision.Outcomes[n:]
	a.decision.Outcomes, a.shadowOutcomes = a.decision.Outcomes[:n], a.shadowOutcomes[:0]
	for i, o := range beside {
		switch {
		case i >= len(uses):
			a.shadowOutcomes = append(a.shadowOutcomes, o)
		case o.Allowed:
		case i < len(a.firstUse):
			isUsed = true
		default:
			a.steps.usedTwice = true
		}
	}
	return isUsed, nil
}

// A taker takes claims, as limiter.Store.Take does.
type taker func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error

// take takes claims from the store.
func (a *admitter) take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if a.timeout == 0 {
		return a.store.Take(ctx, claims, d)
	}
	return a.metrics.measure("take", func() error { return a.store.Take(ctx, claims, d) })
}

// peek is take without taking.
func (a *admitter) peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, _ := limiter.CutDeciding(claims)
	return a.store.Peek(ctx, own, d)
}

// errLate reports that a decision was not made when it was due.
var errLate = fmt.Errorf("%w: the decision was late", limiter.ErrUnavailable)

// takeInTime takes the claims of group 0 from the store like take, and returns errLate when ctx is done. If the store
// grants the claims after that, within the timeout of a decision, they are refunded.
func (a *admitter) takeInTime(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, _ := limiter.CutDeciding(claims)
	own = slices.Clone(own) // the caller may be gone when the store reads them
	for i := range own {
		own[i].RedissonName = strings.Clone(own[i].RedissonName)
	}
	var made limiter.Decision
	var ended atomic.Bool // by the store, or by the caller who waits no longer
	result := make(chan error, 1)
	a.late.Go(func() {
		err := a.take(context.Background(), own, &made) // the store bounds each call by the timeout of a decision
		if ended.CompareAndSwap(false, true) {
			result <- err
		} else if err == nil && made.Allowed {
			a.refundLate(own, made.Permit)
		}
	})
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		if ended.CompareAndSwap(false, true) {
			return errLate
		}
		err = <-result // it comes now
	}
	*d = made
	return err
}

// refundLate refunds what a late decision has taken. It is not recorded for outages of the store.
func (a *admitter) refundLate(claims []limiter.Claim, p limiter.Permit) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	_ = a.metrics.measure("refund", func() error { return a.sharedStore().Refund(ctx, claims, p) }) // if it fails, the permits stay taken
}

// sharedStore returns the store without the records for its outages on this node.
func (a *admitter) sharedStore() limiter.AdminStore {
	if m, is := a.store.(mirrored); is {
		return m.AdminStore
	}
	return a.store
}

// An effort says whether a shared store may be called.
type effort int

const (
	askStore   effort = iota
	askLocally        // only its local cache of refusals is asked
)

// refuseEarly returns errRefused if the claims of q would be refused now. Nothing is taken.
func (a *admitter) refuseEarly(client context.Context, q *admission, e effort) error {
	if len(q.claims) == 0 || a.fallback.decider(q) == decideByShare || !a.refusesNow(client, q, e) {
		return nil
	}
	a.fallback.record(q)
	q.mergePrevious()
	a.metrics.countDecisions(q.stripe, q.claims, q.decision.Outcomes)
	q.decided = true
	ctx, cancel := a.withTimeout(client)
	defer cancel()
	return a.refuse(ctx, q, a.store)
}

// refusesNow reports whether the claims of q would be refused now. If so, it fills the decision of q.
func (a *admitter) refusesNow(client context.Context, q *admission, e effort) bool {
	if a.denier != nil && a.denier.Denied(q.claims, &q.decision) {
		return true
	}
	if a.shared && e == askLocally {
		return false
	}
	ctx, cancel := a.withTimeout(client)
	defer cancel()
	err := a.store.Peek(ctx, q.claims, &q.decision)
	return err == nil && !q.decision.Allowed
}

// check decides about q, of a descriptor that takes nothing. While the store is unreachable, limits that do not deny allow it.
func (a *admitter) check(ctx context.Context, q *admission) error {
	if len(q.claims) == 0 {
		return nil
	}
	ctx, cancel := a.withTimeoutForAll(ctx, q)
	defer cancel()
	if q.err = a.store.Peek(ctx, q.claims, &q.decision); q.err != nil {
		q.decision.Outcomes = q.decision.Outcomes[:0]
		if q.claims.anyLimit(func(l *limit) bool { return l.OnStoreFailure == config.Deny }) {
			q.fallback = string(config.Deny)
			return errUndecided
		}
		return nil
	}
	q.decided = true
	q.mergePrevious()
	if !q.decision.Allowed {
		q.shortenRetry()
		return errRefused
	}
	return nil
}
