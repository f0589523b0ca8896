package proxy

import (
	"context"
	"time"
)

// headerDelay is how long the beginning of a response waits for the release of
// concurrent permits, so that a response goes out in one piece where the store is
// as fast as it should be.
const headerDelay = 5 * time.Millisecond

// hasHeld reports whether q has concurrent permits to give back.
func (q *admission) hasHeld() bool {
	for i := range q.taken {
		if q.taken[i].hasHeld() {
			return true
		}
	}
	return false
}

// hasHeld reports whether t has concurrent permits to give back.
func (t *takenPermit) hasHeld() bool { return t.hold != nil && !t.released }

// release gives back the concurrent permits of q, whatever comes of it, while its
// response is about to end: a client that has read the response whole, and asks again,
// is not refused for what it has just ended. The response's end waits for it, its
// beginning does not: when the store is slow flush is called, which sends what there
// is. Of a response without a body the header is the end.
func (a *admitter) release(ctx context.Context, q *admission, flush func()) {
	if a.timeout == 0 { // this store never waits
		a.giveHeld(ctx, q)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.giveHeld(ctx, q)
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

// giveHeld gives the concurrent permits of q back.
func (a *admitter) giveHeld(ctx context.Context, q *admission) {
	for i := range q.taken {
		t := &q.taken[i]
		if !t.hasHeld() {
			continue
		}
		q.settled.back = q.settled.back[:0]
		for _, c := range t.asked.claims {
			if concurrent(c) {
				q.settled.back = append(q.settled.back, c)
			}
		}
		t.hold.end()
		t.released = true
		a.refund(ctx, q, t)
	}
}
