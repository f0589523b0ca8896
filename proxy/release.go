package proxy

import (
	"context"
	"time"
)

// headerWithin is how long the beginning of an answer waits for the release of
// concurrent permits, so that an answer goes out in one piece where the store is as
// fast as it should be.
const headerWithin = 5 * time.Millisecond

// hasHeld reports whether x has concurrent permits to give back.
func (x *exchange) hasHeld() bool {
	for i := range x.admitted.takings {
		if x.admitted.takings[i].hasHeld() {
			return true
		}
	}
	return false
}

// hasHeld reports whether t has concurrent permits to give back.
func (t *taking) hasHeld() bool { return t.hold != nil && !t.released }

// release gives back the concurrent permits of x, whatever comes of it, while its
// answer is about to end: a client that has read the answer whole, and asks again, is
// not refused for what it has just ended. The answer's end waits for it, its beginning
// does not: when the store is slow flush is called, which sends what there is. Of an
// answer without a body the header is the end.
func (a *admitter) release(ctx context.Context, x *exchange, flush func()) {
	if a.timeout == 0 { // this store never waits
		a.giveHeld(ctx, x)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.giveHeld(ctx, x)
	}()
	late := time.NewTimer(headerWithin)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		flush()
		<-done
	}
}

// giveHeld gives the concurrent permits of x back.
func (a *admitter) giveHeld(ctx context.Context, x *exchange) {
	for i := range x.admitted.takings {
		t := &x.admitted.takings[i]
		if !t.hasHeld() {
			continue
		}
		x.settled.back = x.settled.back[:0]
		for _, c := range t.asked.claims {
			if concurrent(c) {
				x.settled.back = append(x.settled.back, c)
			}
		}
		t.hold.end()
		t.released = true
		a.refund(ctx, x, t)
	}
}
