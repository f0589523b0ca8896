package proxy

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A replayPlace identifies a queue: the limit and the key of the claim that waits.
type replayPlace struct {
	limit string
	key   limiter.Key
}

// A replayLine is limiter.WaitQueue on the clock of a Replay: first come, first served. Only the
// first request in the queue calls the store.
type replayLine struct {
	waiting []*replayWaiter
	free    time.Time // when the first request will call the store again
}

type replayWaiter struct {
	*visit
	limiter.WaitOptions
	place replayPlace
	first int // index of the claim that waits
	began time.Time
	done  bool
}

// waitsAt returns the queue in which x waits, and the limit that allows it to wait. The limit is
// nil if x does not wait.
func (q *admission) waitsAt() (at replayPlace, first *limit) {
	if !q.route.waits {
		return at, nil
	}
	for i, c := range q.claims.claims {
		if l := q.claims.windows[i].of; l.Wait > 0 {
			return replayPlace{c.Limit.Name, c.Key}, l
		}
	}
	return at, nil
}

// stand adds a request to its queue. Data of the log is not used after that.
func (r *Replay) stand(v *visit, at replayPlace, first *limit) {
	v.x.repeat.first = nil // idempotency is not replayed for requests that wait
	w := &replayWaiter{visit: v, place: at, began: r.now}
	w.WaitOptions, _ = v.x.waitOptions()
	w.first = slices.IndexFunc(w.MaxWait, func(d time.Duration) bool { return d > 0 })
	q := r.lines[at]
	if q == nil {
		q = &replayLine{}
		r.lines[at] = q
	}
	if len(q.waiting) > 0 && len(q.waiting) >= w.MaxWaiting {
		w.refuse(r.now)
		r.decide(w)
		return
	}
	v.labels = v.x.labels()
	q.waiting = append(q.waiting, w)
	if len(q.waiting) == 1 {
		r.serveFirst(q)
		return
	}
	until := w.began.Add(w.MaxWait[w.first])
	if q.free.After(until) {
		r.tooLate(q, w)
		return
	}
	v.x.waited = true
	r.events.add(until, func() {
		if !w.done && q.waiting[0] != w {
			r.tooLate(q, w)
		}
	})
}

// serveFirst calls the store for the first request in the queue, and again after the wait that the
// store returns.
func (r *Replay) serveFirst(q *replayLine) {
	w := q.waiting[0]
	x := &w.x
	w.taken = r.proxy.admitter.store.Take(context.Background(), x.claims.claims, &x.decision)
	if w.taken != nil || x.decision.Allowed || !w.worth(r.now) {
		r.leaveLine(q, w)
		return
	}
	again := r.now.Add(x.decision.Wait)
	q.free = again
	x.waited = true
	r.events.add(again, func() { r.serveFirst(q) })
}

// worth reports whether the request may wait for all limits that refuse it.
func (w *replayWaiter) worth(now time.Time) bool {
	for i, o := range w.x.decision.Outcomes {
		if !o.Allowed && now.Add(o.Wait).After(w.began.Add(w.MaxWait[i])) {
			return false
		}
	}
	return true
}

// tooLate decides about a request that cannot become the first in time. A permit that the store
// would grant belongs to the requests before it.
func (r *Replay) tooLate(q *replayLine, w *replayWaiter) {
	x := &w.x
	w.taken = r.proxy.admitter.store.Peek(context.Background(), x.claims.claims, &x.decision)
	if w.taken == nil && x.decision.Allowed {
		w.refuse(r.now)
	}
	r.leaveLine(q, w)
}

// refuse refuses the request without calling the store, because other requests are before it in the
// queue.
func (w *replayWaiter) refuse(now time.Time) {
	d := &w.x.decision
	*d = limiter.Decision{At: now, Wait: w.MaxWait[w.first], Outcomes: d.Outcomes[:0]}
	for i, c := range w.x.claims.claims {
		o := limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true}
		if i == w.first {
			o = limiter.Outcome{Wait: d.Wait}
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// leaveLine removes w from the queue, and serves the next request.
func (r *Replay) leaveLine(q *replayLine, w *replayWaiter) {
	first := q.waiting[0] == w
	i := slices.Index(q.waiting, w)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	w.done = true
	r.decide(w)
	switch {
	case len(q.waiting) == 0:
		delete(r.lines, w.place)
	case first:
		q.free = time.Time{}
		r.serveFirst(q)
	}
}

// decide continues with a request that has been decided.
func (r *Replay) decide(w *replayWaiter) {
	v := w.visit
	if v.err = v.taken; v.err == nil {
		v.err = r.proxy.admitter.admit(context.Background(), &v.x.admission)
	}
	r.leave(v)
}
