package limit

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
	// ErrRefused reports that a limit refused the request. The decision is in the admission.
	ErrRefused = errors.New("refused by a limit")
	// ErrUndecided reports that the store is unreachable and that a limit of the route refuses all
	// requests in that case.
	ErrUndecided = errors.New("limits cannot be decided")
)

// An Admitter decides by the limits whether a request is allowed. It is shared by all generations.
type Admitter struct {
	Store    limiter.AdminStore
	Timeout  time.Duration // maximum duration of a decision; 0 for a store in memory, which never blocks
	shared   bool          // the store is shared; a call costs a network round trip
	Fallback *Fallback
	Memory   keyCounter  // the counts in this process: those of the store if it is in memory, otherwise of the fallback
	denier   localDenier // nil if the store has no local cache of refusals
	// Announcer notifies other nodes of changes; nil if there are no other nodes.
	Announcer  announcer
	WaitQueue  *limiter.WaitQueue // waits for permits of store
	metrics    *Metrics
	NearLimits *nearLimits

	ahead *aheadStore // nil for a store in memory
	held  heldLeases
	late  sync.WaitGroup // decisions that nobody waits for any more; see takeInTime
}

// A keyCounter is a store in memory, which knows how many keys it counts, and their size.
type keyCounter interface {
	Keys() (keys int, bytes int64)
}

// NewAdmitter returns an admitter by a store of the given configuration, which so many nodes share.
func NewAdmitter(c *config.Config, store limiter.AdminStore, nodes func() int, m *Metrics) *Admitter {
	a := &Admitter{Store: store, Fallback: NewFallback(store, nodes), metrics: m, NearLimits: newNearLimits()}
	if a.Memory, _ = store.(keyCounter); a.Memory == nil {
		a.Memory = a.Fallback.Local
	}
	a.denier, _ = store.(localDenier)
	a.Announcer, _ = store.(announcer)
	if a.Fallback.Store != nil {
		a.ahead = &aheadStore{AdminStore: measured{a.Fallback.Store, m}, nodes: a.Fallback.Nodes, timeout: c.Redis.Timeout, keys: map[aheadKey]*aheadPermits{}}
		store, a.Store = a.ahead, mirrored{a.ahead, a.Fallback}
	}
	if a.shared = c.Store == config.StoreRedis; a.shared {
		a.Timeout = c.Redis.Timeout
	}
	a.WaitQueue = limiter.NewWaitQueue(store, cmp.Or(a.Timeout, SettleTimeout)) // refunds by the queue are not recorded elsewhere
	return a
}

// Close refunds the permits of held leases, and waits for late decisions.
func (a *Admitter) Close() {
	a.held.close()
	a.late.Wait()
	if a.ahead != nil {
		a.ahead.close()
	}
}

// Admit takes all claims of q in one step. It returns errRefused if a limit refused them, and
// ErrUndecided if the store is unreachable and a limit has on_store_failure: deny. A client that
// disconnects meanwhile is counted anyway. All calls to the store together are bounded by the
// Timeout of one decision, except for a request that may wait for a permit: see wait.
func (a *Admitter) Admit(client context.Context, q *Admission) error {
	if len(q.Claims)+len(q.Shadow.Claims)+len(q.Shadow.Errors) == 0 {
		return nil
	}
	ctx, cancel := a.withTimeoutForAll(client, q)
	defer cancel()
	if len(q.Claims)+len(q.FirstUse) == 0 {
		a.decideShadow(ctx, q)
		return nil
	}
	by, err := a.Fallback.decider(q), ErrStoreUnreachable
	if by != decideByShare {
		err = a.takeAll(ctx, client, q, by)
	}
	if q.Repeated {
		return nil
	}
	if q.Waited { // further calls have their own timeout
		ctx, cancel = a.WithTimeout(client)
		defer cancel()
	}
	return a.Conclude(ctx, q, by, err)
}

// Conclude does what follows a decision by the given decider, or its error.
func (a *Admitter) Conclude(ctx context.Context, q *Admission, by decider, err error) error {
	store := a.Store
	if err != nil && errors.Is(err, limiter.ErrQueueFull) {
		err = nil // the decision is a refusal
	}
	if err != nil {
		if !errors.Is(err, limiter.ErrUnavailable) {
			return err
		}
		q.Err = err
		if err := a.Fallback.decide(q, a.metrics); err != nil {
			return err
		}
		if q.cannotStepUp() {
			return ErrUndecided
		}
		store, q.FirstUse = a.Fallback.reporting(), nil
	} else {
		switch {
		case by != decideByBoth:
			a.Fallback.record(q)
		case q.Decision.Allowed:
			store = a.Fallback.both(q) // it has recorded the decision already
		}
		a.NearLimits.record(q)
	}
	q.MergePrevious()
	q.Decided = true
	switch {
	case !q.IsShared:
		a.metrics.countDecisions(q.Stripe, q.Claims, q.Decision.Outcomes)
	case !q.Decision.Allowed:
		q.refusedBy = store
		return ErrRefused // see Share
	}
	q.Steps.count(a.metrics)
	if !q.Decision.Allowed {
		return a.Refuse(ctx, q, store)
	}
	q.addTaken(store, q.Claims, q.Decision.Permit, q.FirstUse)
	if err == nil { // an unreachable store is not called again for the same request
		if !q.IsShared {
			a.CountTaken(q, q.Claims)
		}
		a.decideShadow(ctx, q)
	}
	return nil
}

// Share does what follows the part of q in the decision about all, which is shared.
func (a *Admitter) Share(client context.Context, q, all *Admission) {
	if !all.IsRefused() {
		a.shareShadow(q, &all.Shadow)
	}
	if !all.Decided {
		return
	}
	a.metrics.countDecisions(q.Stripe, q.Claims, q.Decision.Outcomes)
	if q.IsRefused() {
		ctx, cancel := a.withTimeoutForAll(client, q)
		defer cancel()
		_ = a.Refuse(ctx, q, all.refusedBy) // q tells of the refusal
	}
}

// Refuse does what follows a refusal by the store by: it counts penalties and sets Retry-After.
func (a *Admitter) Refuse(ctx context.Context, q *Admission, by limiter.AdminStore) error {
	a.penalize(ctx, q, by)
	q.ShortenRetry()
	return ErrRefused
}

// WithTimeout returns a context with the timeout of one decision. It is not cancelled when the client
// disconnects.
func (a *Admitter) WithTimeout(client context.Context) (context.Context, context.CancelFunc) {
	if a.Timeout == 0 {
		return client, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(client), a.Timeout)
}

// withTimeoutForAll returns a context for all store calls of admit. A single call needs no timer of its own:
// the store bounds each call by the timeout of a decision.
func (a *Admitter) withTimeoutForAll(client context.Context, q *Admission) (context.Context, context.CancelFunc) {
	if !q.Due.IsZero() && a.Timeout > 0 {
		return context.WithDeadline(context.Background(), q.Due) // a store needs none of the client's values
	}
	mayCount := func(l *Limit) bool { return l.Penalty != nil } // refusals
	if a.Timeout > 0 && q.Route.MaxWait == 0 && len(q.FirstUse)+len(q.Shadow.Claims) == 0 && !q.Claims.AnyLimit(mayCount) {
		return context.Background(), func() {}
	}
	return a.WithTimeout(client)
}

// ShortenRetry sets the wait of refusals by concurrent limits to at most one second. A permit of a
// concurrent limit may be released at any moment, long before the lease on which the store bases
// its wait ends.
func (a *Admission) ShortenRetry() {
	a.Decision.Wait = 0
	for i := range a.Decision.Outcomes {
		o := &a.Decision.Outcomes[i]
		if concurrent(&a.Claims[i]) && !o.Banned {
			o.Wait = min(o.Wait, time.Second)
		}
		if !o.Allowed {
			a.Decision.Wait = max(a.Decision.Wait, o.Wait)
		}
	}
}

// takeAll takes all claims of q from the store.
func (a *Admitter) takeAll(ctx, client context.Context, q *Admission, by decider) error {
	take := a.Store.Take
	if !q.Due.IsZero() && a.Timeout > 0 {
		take = a.takeInTime
	}
	switch {
	case by == decideByBoth:
		take = a.Fallback.takeWithinShare(q, take)
	case q.Route.MaxWait > 0 && q.Due.IsZero():
		take = a.waitInQueue(client, q)
	}
	return a.TakeBy(ctx, q, take, a.Store.Take)
}

// The results of waiting, as label values.
const (
	waitPassed    = "passed"  // it got a permit
	waitRefused   = "refused" // it got none in time, or another limit refused
	waitQueueFull = "crowded" // it could not wait, because too many requests were waiting
	waitGone      = "gone"    // the client disconnected
)

// waitInQueue returns a taker that waits after a refusal for as long as each limit allows, first come,
// first served for each key. Only group 0 is taken. A request waits only for limits with wait. It is refused at once if
// the required wait is longer than allowed. If the client disconnects while it waits, as far as the
// connection shows that, nothing is taken.
func (a *Admitter) waitInQueue(client context.Context, q *Admission) taker {
	return func(_ context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		claims, _ = limiter.CutDeciding(claims)
		p, first := q.waitOptions()
		if first == nil {
			return a.WaitQueue.Wait(context.WithoutCancel(client), claims, d, p)
		}
		waiting := a.metrics.Waiting.WithLabelValues(first.Route, first.Name)
		var since time.Time
		p.OnWait = func() {
			q.Waited, since = true, time.Now()
			waiting.Inc()
		}
		began := time.Now()
		err := a.WaitQueue.Wait(client, claims, d, p)
		if q.Waited {
			waiting.Dec()
			q.WaitTime = time.Since(since)
		} else if a.Timeout > 0 {
			a.metrics.observeStoreCall("take", time.Since(began), err)
		}
		if how := q.waitResult(err, d); how != "" {
			a.metrics.Waits.WithLabelValues(first.Route, first.Name, how).Inc()
		}
		return err
	}
}

// NewWaiter returns what takes the claims of q in steps, for a caller with a clock of its own; nil if no limit lets the request
// wait. onHead is that of limiter.WaitQueue.
func (a *Admitter) NewWaiter(q *Admission, onHead func()) *limiter.Waiter {
	o, first := q.waitOptions()
	if first == nil {
		return nil
	}
	o.OnWait = func() { q.Waited = true }
	return a.WaitQueue.NewWaiter(q.Claims, o, onHead)
}

// waitOptions returns how long to wait for each claim. first is the limit in whose queue the
// request waits, or nil.
func (a *Admission) waitOptions() (p limiter.WaitOptions, first *Limit) {
	p.MaxWait = make([]time.Duration, len(a.Claims))
	for i := range a.Claims {
		of := a.Claims.Window(i).Of
		if p.MaxWait[i] = of.Wait; of.Wait > 0 && first == nil {
			first, p.MaxWaiting = of, of.MaxWaiting
		}
	}
	return p, first
}

// waitResult returns the result of waiting as a label value, or "" if the request did not wait.
func (a *Admission) waitResult(err error, d *limiter.Decision) string {
	switch {
	case errors.Is(err, limiter.ErrQueueFull):
		return waitQueueFull
	case !a.Waited || errors.Is(err, limiter.ErrUnavailable):
		return ""
	case err != nil:
		return waitGone
	case d.Allowed:
		return waitPassed
	}
	return waitRefused
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

// isRepeat reports whether the request is a repeat that is not counted, which it takes by free.
func (a *Admitter) isRepeat(ctx context.Context, q *Admission, free taker) (bool, error) {
	if len(q.FirstUse) == 0 {
		return false, nil
	}
	var d limiter.Decision
	if err := a.Store.Peek(ctx, q.FirstUse, &d); err != nil || d.Allowed {
		return false, err
	}
	repeat := []limiter.Claim{{Limit: &q.Route.Repeats.repeats, Key: q.FirstUse[0].Key, Cost: 1, Source: q.Source}}
	if err := free(ctx, repeat, &d); err != nil || !d.Allowed {
		q.FirstUse = nil // counted like a request without an idempotency key
		return false, err
	}
	q.Repeated = true
	q.Claims = q.Claims[:0]
	q.Decision = limiter.Decision{Allowed: true, At: d.At, Outcomes: q.Decision.Outcomes[:0]}
	return true, nil
}

// takeOnce takes all that q asks for in one step. Of two concurrent requests with the same idempotency key, the second is
// a repeat.
func (a *Admitter) takeOnce(ctx context.Context, q *Admission, take, free taker) error {
	for isAgain := false; ; isAgain = true {
		if repeated, err := a.isRepeat(ctx, q, free); err != nil || repeated {
			return err
		}
		if isAgain { // it was used a moment ago, and is not now
			q.FirstUse = nil
		}
		if isUsed, err := q.ask(ctx, take); err != nil || !isUsed {
			return err
		}
	}
}

// ask takes the claims of a by take, and in the same step the first uses of its idempotency key and tokens, which decide
// with them, and those of each limit in shadow mode as a group. It reports whether the idempotency key has been used.
func (a *Admission) ask(ctx context.Context, take taker) (isUsed bool, err error) {
	if a.Steps == nil && len(a.FirstUse)+len(a.Shadow.Claims) == 0 { // as most
		return false, take(ctx, a.Claims, &a.Decision)
	}
	uses := a.FirstUse
	if a.Steps != nil {
		uses, a.Steps.usedTwice = slices.Concat(uses, a.Steps.tokens), false
	}
	asked := append(append(a.asked[:0], a.Claims...), uses...).addGroups(a.Shadow.Claims)
	a.asked = asked
	if err := take(ctx, asked, &a.Decision); err != nil {
		return false, err
	}
	n := min(len(a.Claims), len(a.Decision.Outcomes))
	beside := a.Decision.Outcomes[n:]
	a.Decision.Outcomes, a.Shadow.outcomes = a.Decision.Outcomes[:n], a.Shadow.outcomes[:0]
	for i, o := range beside {
		switch {
		case i >= len(uses):
			a.Shadow.outcomes = append(a.Shadow.outcomes, o)
		case o.Allowed:
		case i < len(a.FirstUse):
			isUsed = true
		default:
			a.Steps.usedTwice = true
		}
	}
	return isUsed, nil
}

// A taker takes claims, as limiter.Store.Take does.
type taker func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error

// Peek is Take without taking.
func (a *Admitter) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, _ := limiter.CutDeciding(claims)
	return a.Store.Peek(ctx, own, d)
}

// errLate reports that a decision was not made when it was due.
var errLate = fmt.Errorf("%w: the decision was late", limiter.ErrUnavailable)

// takeInTime takes the claims of group 0 from the store like take, and returns errLate when ctx is done. If the store
// grants the claims after that, within the timeout of a decision, they are refunded.
func (a *Admitter) takeInTime(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	own, _ := limiter.CutDeciding(claims)
	own = slices.Clone(own) // the caller may be gone when the store reads them
	for i := range own {
		own[i].RedissonName = strings.Clone(own[i].RedissonName)
	}
	var made limiter.Decision
	var ended atomic.Bool // by the store, or by the caller who waits no longer
	result := make(chan error, 1)
	a.late.Go(func() {
		err := a.Store.Take(context.Background(), own, &made) // the store bounds each call by the timeout of a decision
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
func (a *Admitter) refundLate(claims []limiter.Claim, p limiter.Permit) {
	_ = a.metrics.measure("refund", func() error { return a.SharedStore().StartRefund(claims, p)() }) // if it fails, the permits stay taken
}

// SharedStore returns the store without the records for its outages on this node.
func (a *Admitter) SharedStore() limiter.AdminStore {
	if m, is := a.Store.(mirrored); is {
		return m.AdminStore
	}
	return a.Store
}

// An effort says whether a shared store may be called.
type effort int

const (
	AskStore   effort = iota
	AskLocally        // only its local cache of refusals is asked
)

// RefuseEarly returns errRefused if the claims of q would be refused now. Nothing is taken.
func (a *Admitter) RefuseEarly(client context.Context, q *Admission, e effort) error {
	if len(q.Claims) == 0 || a.Fallback.decider(q) == decideByShare || !a.refusesNow(client, q, e) {
		return nil
	}
	ctx, cancel := a.WithTimeout(client)
	defer cancel()
	return a.Conclude(ctx, q, DecideByStore, nil)
}

// refusesNow reports whether the claims of q would be refused now. If so, it fills the decision of q.
func (a *Admitter) refusesNow(client context.Context, q *Admission, e effort) bool {
	if a.denier != nil && a.denier.Denied(q.Claims, &q.Decision) {
		return true
	}
	if a.shared && e == AskLocally {
		return false
	}
	ctx, cancel := a.WithTimeout(client)
	defer cancel()
	err := a.Store.Peek(ctx, q.Claims, &q.Decision)
	return err == nil && !q.Decision.Allowed
}

// Check decides about q, of a descriptor that takes nothing. While the store is unreachable, limits that do not deny allow it.
func (a *Admitter) Check(ctx context.Context, q *Admission) error {
	if len(q.Claims) == 0 {
		return nil
	}
	ctx, cancel := a.withTimeoutForAll(ctx, q)
	defer cancel()
	if q.Err = a.Store.Peek(ctx, q.Claims, &q.Decision); q.Err != nil {
		q.Decision.Outcomes = q.Decision.Outcomes[:0]
		if q.Claims.Denies() {
			q.Fallback = string(config.Deny)
			return ErrUndecided
		}
		return nil
	}
	q.Decided = true
	q.MergePrevious()
	if !q.Decision.Allowed {
		q.ShortenRetry()
		return ErrRefused
	}
	return nil
}
