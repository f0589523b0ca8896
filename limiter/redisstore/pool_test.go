package redisstore

import (
	"testing"

	"github.com/weir-proxy/weir/limiter/reuse"
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
	p := &g.payload
	texts := [][]byte{p.keys, p.limits, p.windows, p.requests, p.follows, p.notes, p.name}
	g.reset()
	pooltest.Cleared(t, &g)
	for i, text := range texts { // keys and costs of others, for whoever still holds them
		if (text[0] == 0xDB) != reuse.Poisoned {
			t.Errorf("text %d of a batch begins with %#x", i, text[0])
		}
	}

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
