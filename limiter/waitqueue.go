package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrQueueFull reports that the queue of a key is full. No permits were taken, and the
// store was not asked; the decision is a refusal.
var ErrQueueFull = errors.New("too many wait already")

// A WaitQueue lets callers wait for permits of a Store, in FIFO order for each key within
// this process. Only the first caller in the queue of a key asks the store, once for each
// time that the store named; the others wait until it is done.
//
// The zero WaitQueue is invalid; use NewWaitQueue. All methods are safe for concurrent use.
// It starts no goroutines.
type WaitQueue struct {
	store   Store
	timeout time.Duration

	mu    sync.Mutex // guards what follows; never held while waiting
	queue map[queueKey]*queue
}

// A queueKey identifies a queue: the key and limit of the claim that waits.
type queueKey struct {
	limit string
	key   Key
}

type queue struct {
	waiting []*waiter // the first one asks the store
	free    time.Time // time at which the first one asks again
}

type waiter struct {
	first chan struct{} // closed when the waiter is first
}

// NewWaitQueue returns a WaitQueue for store. A call to the store takes at most timeout, so
// that a permit that arrives too late can be refunded.
func NewWaitQueue(store Store, timeout time.Duration) *WaitQueue {
	return &WaitQueue{store: store, timeout: timeout, queue: map[queueKey]*queue{}}
}

// WaitOptions configure a call of Wait.
type WaitOptions struct {
	// For is the maximum waiting time of each claim, from the call on; 0 means none. Claims
	// beyond its length do not wait.
	For []time.Duration
	// MaxWaiting is the maximum length of the queue, including the caller that asks the
	// store.
	MaxWaiting int
	// Waits, if not nil, is called when waiting begins, at most once.
	Waits func()
}

// Wait is like Store.Take, and waits for refused claims as long as p allows, in the queue
// of the first claim that may wait. It returns the refusal at once if waiting cannot help:
// a claim that may not wait is refused, or the time that the store named is beyond what p
// or ctx's deadline allows. If the queue has p.MaxWaiting callers, it returns ErrQueueFull
// without asking the store. If ctx ends, it returns its error; no permits are taken, or
// they are refunded. A caller that needs no queue is not delayed by those in it.
func (l *WaitQueue) Wait(ctx context.Context, claims []Claim, d *Decision, p WaitOptions) error {
	if err := CheckAll(claims); err != nil {
		return err
	}
	if len(p.For) > len(claims) {
		p.For = p.For[:len(claims)]
	}
	first := slices.IndexFunc(p.For, func(d time.Duration) bool { return d > 0 })
	if first < 0 {
		if len(claims) == 0 {
			return l.store.Take(ctx, claims, d)
		}
		return l.ask(ctx, claims, d)
	}
	v := &visit{WaitOptions: p, place: queueKey{claims[first].Limit.Name, claims[first].Key}, claims: claims, first: first, began: time.Now()}
	me, alone, err := l.join(v.place, p.MaxWaiting)
	if err != nil {
		v.refuse(d, p.For[first])
		return err
	}
	defer l.leave(v.place, me)
	if !alone {
		if err := l.await(ctx, v, me); err != nil {
			if errors.Is(err, errTooLate) {
				return l.tooLate(ctx, v, d)
			}
			return err
		}
	}
	return l.serve(ctx, v, d)
}

// A visit is the state of one call of Wait.
type visit struct {
	WaitOptions
	place  queueKey
	claims []Claim
	first  int // the claim whose queue it is in
	began  time.Time
	waited bool
}

// waits calls WaitOptions.Waits.
func (v *visit) waits() {
	if !v.waited && v.Waits != nil {
		v.Waits()
	}
	v.waited = true
}

// until returns the deadline for waiting for a claim.
func (v *visit) until(ctx context.Context, claim int) time.Time {
	most := v.began
	if claim < len(v.For) {
		most = most.Add(v.For[claim])
	}
	if at, ok := ctx.Deadline(); ok && at.Before(most) {
		return at
	}
	return most
}

// worth reports whether all claims that d refuses may wait long enough.
func (v *visit) worth(ctx context.Context, now time.Time, d *Decision) bool {
	for i, o := range d.Outcomes {
		if !o.Allowed && now.Add(o.Wait).After(v.until(ctx, i)) {
			return false
		}
	}
	return true
}

// refuse fills d without asking the store: the callers in the queue go first. The other
// limits are unknown.
func (v *visit) refuse(d *Decision, wait time.Duration) {
	*d = Decision{At: time.Now(), Wait: wait, Outcomes: d.Outcomes[:0]}
	for i, c := range v.claims {
		o := Outcome{Allowed: true, Remaining: c.Limit.Most(), Unknown: true}
		if i == v.first {
			o = Outcome{Wait: wait}
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// tooLate asks the store for a caller that did not become first in time. Permits that it
// would get belong to the callers before it.
func (l *WaitQueue) tooLate(ctx context.Context, v *visit, d *Decision) error {
	if err := l.store.Peek(ctx, v.claims, d); err != nil {
		return err
	}
	if d.Allowed {
		v.refuse(d, v.For[v.first])
	}
	return nil
}

var errTooLate = errors.New("not within the time")

// join appends a waiter; alone is true if it is the first.
func (l *WaitQueue) join(at queueKey, crowd int) (me *waiter, alone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue[at]
	if q == nil {
		q = &queue{}
		l.queue[at] = q
	}
	if len(q.waiting) > 0 && len(q.waiting) >= crowd {
		return nil, false, ErrQueueFull
	}
	me = &waiter{first: make(chan struct{})}
	q.waiting = append(q.waiting, me)
	return me, len(q.waiting) == 1, nil
}

// leave removes me, and makes the next waiter the first.
func (l *WaitQueue) leave(at queueKey, me *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue[at]
	wasFirst := q.waiting[0] == me
	for i, w := range q.waiting {
		if w == me {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	if len(q.waiting) == 0 {
		delete(l.queue, at)
	} else if wasFirst {
		q.free = time.Time{}
		close(q.waiting[0].first)
	}
}

// await waits until me is first. It returns at once if the first waiter itself must wait
// beyond the deadline.
func (l *WaitQueue) await(ctx context.Context, v *visit, me *waiter) error {
	deadline := v.until(ctx, v.first)
	l.mu.Lock()
	tooLate := l.queue[v.place].free.After(deadline)
	l.mu.Unlock()
	if tooLate {
		return errTooLate
	}
	v.waits()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-me.first:
		return nil
	case <-timer.C:
		return errTooLate
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serve asks the store for the first waiter, again at each time that the store named.
func (l *WaitQueue) serve(ctx context.Context, v *visit, d *Decision) error {
	for {
		if err := l.ask(ctx, v.claims, d); err != nil || d.Allowed {
			return err
		}
		now := time.Now()
		if !v.worth(ctx, now, d) {
			return nil
		}
		l.mu.Lock()
		l.queue[v.place].free = now.Add(d.Wait)
		l.mu.Unlock()
		v.waits()
		timer := time.NewTimer(d.Wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// ask asks the store with a context that does not end with the caller's, so that it is
// known what was taken and can be refunded.
func (l *WaitQueue) ask(ctx context.Context, claims []Claim, d *Decision) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	defer cancel()
	if err := l.store.Take(own, claims, d); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil && d.Allowed {
		return errors.Join(err, l.store.Refund(own, claims, d.Permit))
	}
	return nil
}
