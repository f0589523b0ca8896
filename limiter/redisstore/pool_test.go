package redisstore

import (
	"testing"

	"github.com/weir-proxy/weir/test/pooltest"
)

// Nothing of a request is left in what is used again for another one: it keeps memory, and what belongs to the store.
func TestPools_ResetsLeaveNothing(t *testing.T) {
	var c call
	pooltest.Fill(t, &c)
	c.reset()
	pooltest.Cleared(t, &c, "call.done")

	var g slotBatch
	pooltest.Fill(t, &g)
	g.reset()
	pooltest.Cleared(t, &g)

	var b batch
	pooltest.Fill(t, &b)
	groups := len(b.groups)
	b.reset()
	if len(b.freeGroups) < groups {
		t.Errorf("%d of %d groups are kept", len(b.freeGroups), groups)
	}
	for _, g := range b.freeGroups[len(b.freeGroups)-groups:] {
		pooltest.Cleared(t, g)
	}
	pooltest.Cleared(t, &b, "batch.store", "batch.freeGroups")
}
