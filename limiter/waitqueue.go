package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrQueueFull reports that the maximum number of callers are waiting for the same key
// already. Nothing was taken; the decision is a refusal that was made without calling the
// store.
var ErrQueueFull = errors.New("wait queue full")

// A WaitQueue lets callers wait for permits of a Store. There is one queue for each key,
// first in, first out, within this process. Only the caller at the head of a queue calls
// the store, once for each time that the store returned as Wait; the others wait for it
// to be served.
//
// NewWaitQueue returns one; the zero value is not valid. All methods are safe for
// concurrent use. It starts no goroutines.
type WaitQueue struct {
	store   Store
	timeout time.Duration

	mu     sync.Mutex // guards queues and their contents; never held while waiting
	queues map[queueKey]*queue
}

// A queueKey identifies a queue: the limit and key of the claim that is waited for.
type queueKey struct {
	limit string
	key   Key
}

type queue struct {
	waiting  []*waiter // the first one calls the store
	nextTake time.Time // when the first one calls the store again
}

type waiter struct {
	atHead chan struct{} // closed when the waiter is the first one
}

// NewWaitQueue returns a WaitQueue for store. A call to the store takes at most timeout,
// even if the caller's context has ended, so that permits that were granted too late can
// be refunded.
func NewWaitQueue(store Store, timeout time.Duration) *WaitQueue {
	return &WaitQueue{store: store, timeout: timeout, queues: map[queueKey]*queue{}}
}

// WaitOptions are the options of one call of Wait.
type WaitOptions struct {
	// MaxWait has, for each claim, the longest time to wait for it from the call on; 0
	// means not to wait. Claims beyond its length are not waited for.
	MaxWait []time.Duration
	// MaxWaiting is the maximum number of callers in a queue, including the one at the
	// head.
	MaxWaiting int
	// OnWait, if not nil, is called at most once, before the call starts to wait.
	OnWait func()
}

// Wait is like Store.Take, but waits for refused claims as long as o allows, in the queue
// of the first claim that may be waited for. It returns a refusal without waiting if
// waiting cannot help: if a claim that may not be waited for is refused, or if the
// store's Wait exceeds what o or ctx's deadline allows. If o.MaxWaiting callers are in
// the queue already, it returns ErrQueueFull without calling the store. If ctx ends, Wait
// returns its cause, and nothing is taken; permits that were granted meanwhile are
// refunded. Callers that need not wait are not delayed by callers that do.
func (q *WaitQueue) Wait(ctx context.Context, claims []Claim, d *Decision, o WaitOptions) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	if len(o.MaxWait) > len(claims) {
		o.MaxWait = o.MaxWait[:len(claims)]
	}
	first := slices.IndexFunc(o.MaxWait, func(d time.Duration) bool { return d > 0 })
	if first < 0 {
		if len(claims) == 0 {
			return q.store.Take(ctx, claims, d)
		}
		return q.take(ctx, claims, d)
	}
	w := &waitCall{WaitOptions: o, queue: queueKey{claims[first].Limit.Name, claims[first].Key}, claims: claims, claim: first, started: time.Now()}
	me, isHead, err := q.join(w.queue, o.MaxWaiting)
	if err != nil {
		w.refuse(d, o.MaxWait[first])
		return err
	}
	defer q.leave(w.queue, me)
	if !isHead {
		if err := q.awaitHead(ctx, w, me); err != nil {
			if errors.Is(err, errTooLate) {
				return q.peekTooLate(ctx, w, d)
			}
			return err
		}
	}
	return q.takeAtHead(ctx, w, d)
}

// A waitCall is the state of one call of Wait.
type waitCall struct {
	WaitOptions
	queue     queueKey
	claims    []Claim
	claim     int // index of the claim that the queue belongs to
	started   time.Time
	hasWaited bool
}

// notifyWait calls OnWait when the call waits for the first time.
func (w *waitCall) notifyWait() {
	if !w.hasWaited && w.OnWait != nil {
		w.OnWait()
	}
	w.hasWaited = true
}

// deadline returns the time until which a claim may be waited for.
func (w *waitCall) deadline(ctx context.Context, claim int) time.Time {
	latest := w.started
	if claim < len(w.MaxWait) {
		latest = latest.Add(w.MaxWait[claim])
	}
	if at, ok := ctx.Deadline(); ok && at.Before(latest) {
		return at
	}
	return latest
}

// canWaitFor reports whether all claims that d refuses may be waited for.
func (w *waitCall) canWaitFor(ctx context.Context, now time.Time, d *Decision) bool {
	for i, o := range d.Outcomes {
		if !o.Allowed && now.Add(o.Wait).After(w.deadline(ctx, i)) {
			return false
		}
	}
	return true
}

// refuse sets d to a refusal without calling the store: the callers in the queue go
// first. The outcomes of the other claims are unknown.
func (w *waitCall) refuse(d *Decision, wait time.Duration) {
	*d = Decision{At: time.Now(), Wait: wait, Outcomes: d.Outcomes[:0]}
	for i, c := range w.claims {
		o := Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true}
		if i == w.claim {
			o = Outcome{Wait: wait}
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// peekTooLate sets d to a refusal for a caller that did not reach the head of the queue
// in time. Permits that the store would grant belong to the callers ahead.
func (q *WaitQueue) peekTooLate(ctx context.Context, w *waitCall, d *Decision) error {
	if err := q.store.Peek(ctx, w.claims, d); err != nil {
		return err
	}
	if d.Allowed {
		w.refuse(d, w.MaxWait[w.claim])
	}
	return nil
}

var errTooLate = errors.New("wait deadline exceeded")

// join appends a waiter to the queue; isHead is true if it is the first one.
func (q *WaitQueue) join(at queueKey, maxWaiting int) (me *waiter, isHead bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.queues[at]
	if list == nil {
		list = &queue{}
		q.queues[at] = list
	}
	if len(list.waiting) > 0 && len(list.waiting) >= maxWaiting {
		return nil, false, ErrQueueFull
	}
	me = &waiter{atHead: make(chan struct{})}
	list.waiting = append(list.waiting, me)
	return me, len(list.waiting) == 1, nil
}

// leave removes me from the queue and notifies the new head.
func (q *WaitQueue) leave(at queueKey, me *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.queues[at]
	wasFirst := list.waiting[0] == me
	for i, w := range list.waiting {
		if w == me {
			list.waiting = append(list.waiting[:i], list.waiting[i+1:]...)
			break
		}
	}
	if len(list.waiting) == 0 {
		delete(q.queues, at)
	} else if wasFirst {
		list.nextTake = time.Time{}
		close(list.waiting[0].atHead)
	}
}

// awaitHead waits until me is at the head of the queue. It does not wait if the current
// head itself waits beyond the deadline.
func (q *WaitQueue) awaitHead(ctx context.Context, w *waitCall, me *waiter) error {
	deadline := w.deadline(ctx, w.claim)
	q.mu.Lock()
	tooLate := q.queues[w.queue].nextTake.After(deadline)
	q.mu.Unlock()
	if tooLate {
		return errTooLate
	}
	w.notifyWait()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-me.atHead:
		return nil
	case <-timer.C:
		return errTooLate
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// takeAtHead calls the store for the caller at the head, and again after each Wait.
func (q *WaitQueue) takeAtHead(ctx context.Context, w *waitCall, d *Decision) error {
	for {
		if err := q.take(ctx, w.claims, d); err != nil || d.Allowed {
			return err
		}
		now := time.Now()
		if !w.canWaitFor(ctx, now, d) {
			return nil
		}
		q.mu.Lock()
		q.queues[w.queue].nextTake = now.Add(d.Wait)
		q.mu.Unlock()
		w.notifyWait()
		timer := time.NewTimer(d.Wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// take calls the store with a context that does not end with ctx. If ctx ends during the
// call, the result is still known, and granted permits are refunded.
func (q *WaitQueue) take(ctx context.Context, claims []Claim, d *Decision) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	storeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.timeout)
	defer cancel()
	if err := q.store.Take(storeCtx, claims, d); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil && d.Allowed {
		return errors.Join(err, q.store.Refund(storeCtx, claims, d.Permit))
	}
	return nil
}
