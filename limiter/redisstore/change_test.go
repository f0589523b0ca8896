package redisstore

import (
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

// A refund that was started is run before a request that begins later, also in the same
// batch, and without waiting for it; refusals that are in flight are not remembered.
func TestPipeline_StartedRefundComesFirst(t *testing.T) {
	s := grounded(t)
	claims := []limiter.Claim{{Limit: bucketOf("once", 1), Key: limiter.Key{1}, Cost: 1}}
	take := func() *call {
		c := s.newCall(claims, newID())
		s.join(t, c)
		return c
	}
	first := take()
	s.fly(t)
	<-first.done
	for i := range 100 {
		before, wait := take(), s.StartRefund(claims, limiter.Permit{ID: first.id, At: first.decision.At})
		after := take()
		if n := s.fly(t); n != 1 {
			t.Fatalf("%d batches; want one", n)
		}
		<-before.done
		<-after.done
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if !before.decision.Allowed || after.decision.Allowed { // the refund goes first of its batch
			t.Fatalf("round %d: the one before: allowed %t, the one after: %t; want one of them", i, before.decision.Allowed, after.decision.Allowed)
		}
		first = before
	}
}
