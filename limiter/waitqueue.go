package limiter

import (
	"cmp"
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
// to be served. Wait waits by the clock of the machine, a Waiter by any.
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
	waiting  []*Waiter // the first one calls the store
	nextTake time.Time // when the first one calls the store again
}

// NewWaitQueue returns a WaitQueue for store. A call to the store takes at most timeout,
// even if the caller's context has ended, so that permits that were granted too late can
// be refunded.
func NewWaitQueue(store Store, timeout time.Duration) *WaitQueue {
	return &WaitQueue{store: store, timeout: timeout, queues: map[queueKey]*queue{}}
}

// WaitOptions are the options of one call of Wait, or of one Waiter.
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
	atHead := make(chan struct{}, 1)
	w := q.NewWaiter(claims, o, func() { atHead <- struct{}{} })
	defer w.Leave()
	for {
		again, err := w.Step(ctx, time.Now, d)
		if err != nil || again.IsZero() {
			return err
		}
		select {
		case <-atHead:
		case <-time.After(time.Until(again)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// A Waiter is one call of Wait in steps, for callers with a clock of their own, such as
// that of a simulation. It is not safe for concurrent use.
type Waiter struct {
	queue   *WaitQueue
	options WaitOptions
	onHead  func()
	key     queueKey
	claims  []Claim
	claim   int       // index of the claim that the queue belongs to; -1 if none may be waited for
	started time.Time // when it joined the queue; zero before
}

// NewWaiter returns a Waiter for claims. onHead is called when it has become the head of
// its queue, by the caller that leaves it.
func (q *WaitQueue) NewWaiter(claims []Claim, o WaitOptions, onHead func()) *Waiter {
	w := &Waiter{queue: q, options: o, onHead: onHead, claims: claims}
	mayWait := o.MaxWait[:min(len(o.MaxWait), len(claims))]
	if w.claim = slices.IndexFunc(mayWait, func(d time.Duration) bool { return d > 0 }); w.claim >= 0 {
		w.key = queueKey{claims[w.claim].Limit.Name, claims[w.claim].Key}
	}
	return w
}

// Step does what there is to do at the time of the clock now. Unless it returns an error,
// or again is zero, in which case d is the decision, Step must be called again then, or
// when the Waiter has become the head if that is earlier. The caller must call Leave
// after the last step.
func (w *Waiter) Step(ctx context.Context, now func() time.Time, d *Decision) (again time.Time, err error) {
	if w.claim < 0 {
		return again, w.queue.take(ctx, w.claims, d)
	}
	if w.started.IsZero() && !w.join(now()) {
		w.refuse(d, now())
		return again, ErrQueueFull
	}
	if nextTake, isHead := w.position(); !isHead {
		until := w.deadline(ctx, w.claim)
		if nextTake.After(until) || !now().Before(until) { // the head itself waits for longer, or it is too late
			return again, w.peek(ctx, now(), d)
		}
		w.notifyWait()
		return until, nil
	}
	err = w.queue.take(ctx, w.claims, d)
	if at := now(); err == nil && !d.Allowed && w.canWait(ctx, at, d) {
		again = at.Add(d.Wait)
		w.setNextTake(again)
		w.notifyWait()
	}
	return again, err
}

// notifyWait calls OnWait when the call waits for the first time.
func (w *Waiter) notifyWait() {
	if notify := w.options.OnWait; notify != nil {
		w.options.OnWait = nil
		notify()
	}
}

// deadline returns the time until which a claim may be waited for.
func (w *Waiter) deadline(ctx context.Context, claim int) time.Time {
	latest := w.started
	if claim < len(w.options.MaxWait) {
		latest = latest.Add(w.options.MaxWait[claim])
	}
	if at, ok := ctx.Deadline(); ok && at.Before(latest) {
		return at
	}
	return latest
}

// canWait reports whether all claims that d refuses may be waited for.
func (w *Waiter) canWait(ctx context.Context, now time.Time, d *Decision) bool {
	for i, o := range d.Outcomes {
		if !o.Allowed && now.Add(o.Wait).After(w.deadline(ctx, i)) {
			return false
		}
	}
	return true
}

// refuse sets d to a refusal without calling the store: the callers in the queue go
// first. The outcomes of the other claims are unknown.
func (w *Waiter) refuse(d *Decision, now time.Time) {
	*d = Decision{At: now, Wait: w.options.MaxWait[w.claim], Outcomes: d.Outcomes[:0]}
	for i, c := range w.claims {
		o := Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true}
		if i == w.claim {
			o = Outcome{Wait: d.Wait}
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// peek sets d to a refusal for a caller that cannot reach the head of the queue in time.
// Permits that the store would grant belong to the callers ahead.
func (w *Waiter) peek(ctx context.Context, now time.Time, d *Decision) error {
	err := w.queue.store.Peek(ctx, w.claims, d)
	if err == nil && d.Allowed {
		w.refuse(d, now)
	}
	return cmp.Or(context.Cause(ctx), err) // a client that has left is no failure of the store
}

// join appends w to its queue. It reports false if the queue is full.
func (w *Waiter) join(now time.Time) bool {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	list := w.queue.queues[w.key]
	if list == nil {
		list = &queue{}
		w.queue.queues[w.key] = list
	}
	if len(list.waiting) > 0 && len(list.waiting) >= w.options.MaxWaiting {
		return false
	}
	list.waiting = append(list.waiting, w)
	w.started = now
	return true
}

// position reports whether w is the head of its queue, and when the head calls the store
// again.
func (w *Waiter) position() (nextTake time.Time, isHead bool) {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	list := w.queue.queues[w.key]
	return list.nextTake, list.waiting[0] == w
}

func (w *Waiter) setNextTake(at time.Time) {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	w.queue.queues[w.key].nextTake = at
}

// Leave removes w from the queue and notifies the new head.
func (w *Waiter) Leave() {
	if w.started.IsZero() {
		return
	}
	if next := w.remove(); next != nil {
		next.onHead()
	}
}

// remove removes w from the queue. It returns the new head if there is one.
func (w *Waiter) remove() (next *Waiter) {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	list := w.queue.queues[w.key]
	wasHead := list.waiting[0] == w
	list.waiting = slices.DeleteFunc(list.waiting, func(other *Waiter) bool { return other == w })
	switch {
	case len(list.waiting) == 0:
		delete(w.queue.queues, w.key)
	case wasHead:
		list.nextTake = time.Time{}
		next = list.waiting[0]
	}
	return next
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
