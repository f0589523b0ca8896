package proxy

import (
	"context"
	"time"
)

// headerDelay is how long the header of a response may wait for the release of concurrent permits,
// so that header and body are sent together if the store is as fast as usual.
const headerDelay = 5 * time.Millisecond

// hasConcurrent reports whether a has concurrent permits to release.
func (a *admission) hasConcurrent() bool {
	for i := range a.takenPermits {
		if a.takenPermits[i].hasConcurrent() {
			return true
		}
	}
	return false
}

// hasConcurrent reports whether t has concurrent permits to release.
func (t *takenPermit) hasConcurrent() bool { return t.lease != nil && !t.released }

// release releases the concurrent permits of q, whatever its outcome, before the end of its
// response is sent. A client that has received the complete response and sends its next request is
// then not refused because of the previous one. Only the end of the response waits for the store.
// If the store is slow, flush is called to send what is available. The end of a response without a
// body is its header.
func (a *admitter) release(ctx context.Context, q *admission, flush func()) {
	if a.timeout == 0 { // a store in memory does not block
		a.refundConcurrent(ctx, q)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.refundConcurrent(ctx, q)
	}()
	late := time.NewTimer(headerDelay)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		flush()
		<-done
	}
}

// hold keeps the concurrent permits of q for some time after the request, whose client has left while
// the upstream may be working on it.
func (a *admitter) hold(q *admission, during time.Duration) {
	now := time.Now()
	for i := range q.takenPermits {
		if t := &q.takenPermits[i]; t.hasConcurrent() && a.held.add(t.lease, during, now) {
			t.lease, t.released = nil, true
		}
	}
}

// refundConcurrent refunds the concurrent permits of q.
func (a *admitter) refundConcurrent(ctx context.Context, q *admission) {
	for i := range q.takenPermits {
		t := &q.takenPermits[i]
		if !t.hasConcurrent() {
			continue
		}
		q.settled.pending = q.settled.pending[:0]
		for i := range t.claims.claims {
			if c := &t.claims.claims[i]; concurrent(c) {
				q.settled.pending = append(q.settled.pending, *c)
			}
		}
		t.lease.end()
		t.released = true
		a.refund(ctx, q, t)
	}
}
