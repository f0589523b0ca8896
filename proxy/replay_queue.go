package proxy

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A queueID identifies a queue: the limit and the key of the claim that waits.
type queueID struct {
	limit string
	key   limiter.Key
}

// A replayQueue is limiter.WaitQueue on the clock of a Replay: first come, first served. Only the
// first request in the queue calls the store.
type replayQueue struct {
	waiting    []*replayWaiter
	firstRetry time.Time // when the first request will call the store again
}

type replayWaiter struct {
	*visit
	limiter.WaitOptions
	queue queueID
	claim int // index of the claim that waits
	began time.Time
	done  bool
}

// waitQueueOf returns the queue in which x waits, and the limit that allows it to wait. The limit is
// nil if x does not wait.
func (a *admission) waitQueueOf() (at queueID, first *limit) {
	if !a.route.waits {
		return at, nil
	}
	for i, c := range a.claims {
		if l := a.claims.window(i).of; l.Wait > 0 {
			return queueID{c.Limit.Name, c.Key}, l
		}
	}
	return at, nil
}

// enqueue adds a request to its queue. Data of the log is not used after that.
func (r *Replay) enqueue(v *visit, at queueID, first *limit) {
	v.x.firstUse = nil // idempotency is not replayed for requests that wait
	w := &replayWaiter{visit: v, queue: at, began: r.now}
	w.WaitOptions, _ = v.x.waitOptions()
	w.claim = slices.IndexFunc(w.MaxWait, func(d time.Duration) bool { return d > 0 })
	q := r.queues[at]
	if q == nil {
		q = &replayQueue{}
		r.queues[at] = q
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
	until := w.began.Add(w.MaxWait[w.claim])
	if q.firstRetry.After(until) {
		r.timeOut(q, w)
		return
	}
	v.x.waited = true
	r.events.add(until, func() {
		if !w.done && q.waiting[0] != w {
			r.timeOut(q, w)
		}
	})
}

// serveFirst calls the store for the first request in the queue, and again after the wait that the
// store returns.
func (r *Replay) serveFirst(q *replayQueue) {
	w := q.waiting[0]
	x := &w.x
	w.storeErr = r.proxy.admitter.store.Take(context.Background(), x.claims, &x.decision)
	if w.storeErr != nil || x.decision.Allowed || !w.canWait(r.now) {
		r.dequeue(q, w)
		return
	}
	again := r.now.Add(x.decision.Wait)
	q.firstRetry = again
	x.waited = true
	r.events.add(again, func() { r.serveFirst(q) })
}

// canWait reports whether the request may wait for all limits that refuse it.
func (w *replayWaiter) canWait(now time.Time) bool {
	for i, o := range w.x.decision.Outcomes {
		if !o.Allowed && now.Add(o.Wait).After(w.began.Add(w.MaxWait[i])) {
			return false
		}
	}
	return true
}

// timeOut decides about a request that cannot become the first in time. A permit that the store
// would grant belongs to the requests before it.
func (r *Replay) timeOut(q *replayQueue, w *replayWaiter) {
	x := &w.x
	w.storeErr = r.proxy.admitter.store.Peek(context.Background(), x.claims, &x.decision)
	if w.storeErr == nil && x.decision.Allowed {
		w.refuse(r.now)
	}
	r.dequeue(q, w)
}

// refuse refuses the request without calling the store, because other requests are before it in the
// queue.
func (w *replayWaiter) refuse(now time.Time) {
	d := &w.x.decision
	*d = limiter.Decision{At: now, Wait: w.MaxWait[w.claim], Outcomes: d.Outcomes[:0]}
	for i, c := range w.x.claims {
		o := limiter.Outcome{Allowed: true, Remaining: c.Limit.Capacity(), Unknown: true}
		if i == w.claim {
			o = limiter.Outcome{Wait: d.Wait}
		}
		d.Outcomes = append(d.Outcomes, o)
	}
}

// dequeue removes w from the queue, and serves the next request.
func (r *Replay) dequeue(q *replayQueue, w *replayWaiter) {
	first := q.waiting[0] == w
	i := slices.Index(q.waiting, w)
	q.waiting = slices.Delete(q.waiting, i, i+1)
	w.done = true
	r.decide(w)
	switch {
	case len(q.waiting) == 0:
		delete(r.queues, w.queue)
	case first:
		q.firstRetry = time.Time{}
		r.serveFirst(q)
	}
}

// decide continues with a request that has been decided.
func (r *Replay) decide(w *replayWaiter) {
	v := w.visit
	if v.err = v.storeErr; v.err == nil {
		v.err = r.proxy.admitter.admit(context.Background(), &v.x.admission)
	}
	r.finish(v)
}

// events are scheduled, the first at 0: ordered by time, and those of the same time by insertion.
type events struct {
	heap  eventHeap
	added int64
}

type event struct {
	at    time.Time
	order int64
	do    func()
}

// add schedules do.
func (e *events) add(at time.Time, do func()) {
	e.added++
	heap.Push(&e.heap, &event{at, e.added, do})
}

// next removes and returns the first event; nil if it is later than now.
func (e *events) next(now time.Time) *event {
	if len(e.heap) == 0 || e.heap[0].at.After(now) {
		return nil
	}
	return heap.Pop(&e.heap).(*event)
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].order, h[j].order)) < 0
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(*event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return e
}
