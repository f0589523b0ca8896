package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrQueueFull reports that as many callers wait in a line as may. Nothing was
// taken; the decision is a refusal that was made without asking.
var ErrQueueFull = errors.New("too many wait already")

// A WaitQueue lets callers wait for permits of a Store: for each key first come,
// first served, within this process. Only the first in line asks the store, once
// for each time that it named; the others wait for the first to be served.
//
// The zero WaitQueue is not valid; NewWaitQueue makes one. All methods are safe for
// concurrent use. It starts no goroutines.
type WaitQueue struct {
	store   Store
	timeout time.Duration

	mu     sync.Mutex // guards what follows; never held while waiting
	queues map[queueKey]*queue
}

// A queueKey is whose line it is: the key and limit of the claim that waits.
type queueKey struct {
	limit string
	key   Key
}

type queue struct {
	waiting  []*waiter // the first asks the store
	nextTake time.Time // when the first was told to ask again
}

type waiter struct {
	atHead chan struct{} // closed when nobody is before it
}

// NewWaitQueue makes a WaitQueue for store. No question to the store takes longer than
// timeout, so that a permit that came too late can be given back.
func NewWaitQueue(store Store, timeout time.Duration) *WaitQueue {
	return &WaitQueue{store: store, timeout: timeout, queues: map[queueKey]*queue{}}
}

// WaitOptions say what a caller waits for.
type WaitOptions struct {
	// MaxWait says of each claim how long it may be waited for, from the call on; 0 is
	// not at all. Claims beyond its length are not waited for.
	MaxWait []time.Duration
	// MaxWaiting is how many callers may be in a line, the one that asks included.
	MaxWaiting int
	// OnWait, if not nil, is called at most once: when waiting begins.
	OnWait func()
}

// Wait is Store.Take that waits for refused claims as long as p says, in
// the line of the first claim that may be waited for. It returns at once, with the
// refusal, when waiting cannot help: a claim that is not waited for is refused, or
// the store names a time beyond what p or ctx's deadline allows. With p.Crowd
// callers in that line already it returns ErrQueueFull and refuses without asking.
// When ctx ends, its error is returned, and nothing was taken or what was taken is
// given back. A caller who need not stand in line is not held up by those who do.
func (l *WaitQueue) Wait(ctx context.Context, claims []Claim, d *Decision, p WaitOptions) error {
	if err := CheckClaims(claims); err != nil {
		return err
	}
	if len(p.MaxWait) > len(claims) {
		p.MaxWait = p.MaxWait[:len(claims)]
	}
	first := slices.IndexFunc(p.MaxWait, func(d time.Duration) bool { return d > 0 })
	if first < 0 {
		if len(claims) == 0 {
			return l.store.Take(ctx, claims, d)
		}
		return l.take(ctx, claims, d)
	}
	v := &waitCall{WaitOptions: p, queue: queueKey{claims[first].Limit.Name, claims[first].Key}, claims: claims, claim: first, started: time.Now()}
	me, alone, err := l.join(v.queue, p.MaxWaiting)
	if err != nil {
		v.refuse(d, p.MaxWait[first])
		return err
	}
	defer l.leave(v.queue, me)
	if !alone {
		if err := l.awaitHead(ctx, v, me); err != nil {
			if errors.Is(err, errTooLate) {
				return l.peekTooLate(ctx, v, d)
			}
			return err
		}
	}
	return l.takeAtHead(ctx, v, d)
}

// A waitCall is one call: whose line it stands in, and since when.
type waitCall struct {
	WaitOptions
	queue     queueKey
	claims    []Claim
	claim     int // the claim whose line it is
	started   time.Time
	hasWaited bool
}

// notifyWait tells the caller that waiting begins.
func (v *waitCall) notifyWait() {
	if !v.hasWaited && v.OnWait != nil {
		v.OnWait()
	}
	v.hasWaited = true
}

// deadline is the latest that a claim is waited for.
func (v *waitCall) deadline(ctx context.Context, claim int) time.Time {
	most := v.started
	if claim < len(v.MaxWait) {
		most = most.Add(v.MaxWait[claim])
	}
	if at, ok := ctx.Deadline(); ok && at.Before(most) {
		return at
	}
	return most
}

// canWaitFor reports whether all that d refuses may be waited for.
func (v *waitCall) canWaitFor(ctx context.Context, now time.Time, d *Decision) bool {
	for i, o := range d.Outcomes {
		if !o.Allowed && now.Add(o.Wait).After(v.deadline(ctx, i)) {
			return false
		}
	}
	return true
}

// refuse fills d with what is known without asking: those who are in line go
// first. The other limits are not asked.
func (v *waitCall) refuse(d *Decision, wait time.Duration) {
	*d = Decision{At: time.Now(), Wait: wait, Outcomes: d.Outcomes[:0]}
	for i, c := range v.claims {
		o := Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true}
		if i == v.claim {
			o = Outcome{Wait: wait}
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// peekTooLate says what the store thinks of a caller whose turn did not come in
// time. What it would grant belongs to those who are in line before.
func (l *WaitQueue) peekTooLate(ctx context.Context, v *waitCall, d *Decision) error {
	if err := l.store.Peek(ctx, v.claims, d); err != nil {
		return err
	}
	if d.Allowed {
		v.refuse(d, v.MaxWait[v.claim])
	}
	return nil
}

var errTooLate = errors.New("not within the time")

// join puts a waiter at the end; alone says that it is the first.
func (l *WaitQueue) join(at queueKey, crowd int) (me *waiter, alone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[at]
	if q == nil {
		q = &queue{}
		l.queues[at] = q
	}
	if len(q.waiting) > 0 && len(q.waiting) >= crowd {
		return nil, false, ErrQueueFull
	}
	me = &waiter{atHead: make(chan struct{})}
	q.waiting = append(q.waiting, me)
	return me, len(q.waiting) == 1, nil
}

// leave takes me out and lets the next be first.
func (l *WaitQueue) leave(at queueKey, me *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[at]
	wasFirst := q.waiting[0] == me
	for i, w := range q.waiting {
		if w == me {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	if len(q.waiting) == 0 {
		delete(l.queues, at)
	} else if wasFirst {
		q.nextTake = time.Time{}
		close(q.waiting[0].atHead)
	}
}

// awaitHead waits until me is first. It does not wait when the first itself is told
// to wait beyond the deadline.
func (l *WaitQueue) awaitHead(ctx context.Context, v *waitCall, me *waiter) error {
	deadline := v.deadline(ctx, v.claim)
	l.mu.Lock()
	tooLate := l.queues[v.queue].nextTake.After(deadline)
	l.mu.Unlock()
	if tooLate {
		return errTooLate
	}
	v.notifyWait()
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

// takeAtHead asks the store for the first in line, again each time that it named.
func (l *WaitQueue) takeAtHead(ctx context.Context, v *waitCall, d *Decision) error {
	for {
		if err := l.take(ctx, v.claims, d); err != nil || d.Allowed {
			return err
		}
		now := time.Now()
		if !v.canWaitFor(ctx, now, d) {
			return nil
		}
		l.mu.Lock()
		l.queues[v.queue].nextTake = now.Add(d.Wait)
		l.mu.Unlock()
		v.notifyWait()
		timer := time.NewTimer(d.Wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// take asks the store although the caller may leave meanwhile: then it is known
// what was taken, and given back.
func (l *WaitQueue) take(ctx context.Context, claims []Claim, d *Decision) error {
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
