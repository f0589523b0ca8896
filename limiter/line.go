package limiter

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrCrowded says that as many callers wait in a line as may. Nothing was taken.
var ErrCrowded = errors.New("too many wait already")

// A Line lets callers wait for permits of a Store: for each key first come,
// first served, within this process. Only the first in line asks the store, once
// for each time that it named; the others wait for the first to be served.
//
// The zero Line is not valid; NewLine makes one. All methods are safe for
// concurrent use. It starts no goroutines.
type Line struct {
	store   Store
	timeout time.Duration

	mu    sync.Mutex // guards what follows; never held while waiting
	queue map[place]*queue
}

// A place is whose line it is: the key and limit of the claim that waits.
type place struct {
	limit string
	key   Key
}

type queue struct {
	waiting []*waiter // the first asks the store
	free    time.Time // when the first was told to ask again
}

type waiter struct {
	first chan struct{} // closed when nobody is before it
}

// NewLine makes a Line for store. No question to the store takes longer than
// timeout, so that a permit that came too late can be given back.
func NewLine(store Store, timeout time.Duration) *Line {
	return &Line{store: store, timeout: timeout, queue: map[place]*queue{}}
}

// Take is Store.Take that waits up to most for the claims to be granted, in the
// line of claims[0]. It returns at once, with the refusal, when waiting cannot
// help: the store names a time that is further off than most or than ctx's
// deadline. With crowd callers in that line already it returns ErrCrowded, and d
// holds no decision. When ctx ends, its error is returned, and nothing was taken
// or what was taken is given back.
func (l *Line) Take(ctx context.Context, claims []Claim, d *Decision, most time.Duration, crowd int) error {
	if len(claims) == 0 {
		return l.store.Take(ctx, claims, d)
	}
	if err := CheckAll(claims); err != nil {
		return err
	}
	deadline := time.Now().Add(most)
	if at, ok := ctx.Deadline(); ok && at.Before(deadline) {
		deadline = at
	}
	at := place{claims[0].Limit.Name, claims[0].Key}
	me, alone, err := l.join(at, crowd)
	if err != nil {
		return err
	}
	defer l.leave(at, me)
	if !alone {
		if err := l.await(ctx, at, me, deadline); err != nil {
			if errors.Is(err, errTooLate) {
				return l.store.Peek(ctx, claims, d)
			}
			return err
		}
	}
	return l.serve(ctx, at, claims, d, deadline)
}

var errTooLate = errors.New("not within the time")

// join puts a waiter at the end; alone says that it is the first.
func (l *Line) join(at place, crowd int) (me *waiter, alone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue[at]
	if q == nil {
		q = &queue{}
		l.queue[at] = q
	}
	if len(q.waiting) > 0 && len(q.waiting) >= crowd {
		return nil, false, ErrCrowded
	}
	me = &waiter{first: make(chan struct{})}
	q.waiting = append(q.waiting, me)
	return me, len(q.waiting) == 1, nil
}

// leave takes me out and lets the next be first.
func (l *Line) leave(at place, me *waiter) {
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

// await waits until me is first. It does not wait when the first itself is told
// to wait beyond the deadline.
func (l *Line) await(ctx context.Context, at place, me *waiter, deadline time.Time) error {
	l.mu.Lock()
	tooLate := l.queue[at].free.After(deadline)
	l.mu.Unlock()
	if tooLate {
		return errTooLate
	}
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

// serve asks the store for the first in line, again each time that it named.
func (l *Line) serve(ctx context.Context, at place, claims []Claim, d *Decision, deadline time.Time) error {
	for {
		if err := l.ask(ctx, claims, d); err != nil || d.Allowed {
			return err
		}
		again := time.Now().Add(d.Wait)
		if again.After(deadline) {
			return nil
		}
		l.mu.Lock()
		l.queue[at].free = again
		l.mu.Unlock()
		timer := time.NewTimer(d.Wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// ask asks the store although the caller may leave meanwhile: then it is known
// what was taken, and given back.
func (l *Line) ask(ctx context.Context, claims []Claim, d *Decision) error {
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
