package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// scavengeInterval is how often memory is looked at. It costs a few microseconds.
	scavengeInterval = 2 * time.Second
	// idleAllocRate is how many bytes a second may be allocated, at most, for Weir to
	// be quiet: some hundreds of requests.
	idleAllocRate = 4 << 20
	// minScavenge is how many bytes there must be to give back, at least; and a
	// quarter of what is in use, since finding them costs the more the more that is.
	minScavenge = 8 << 20
)

// A memoryUse is how memory is used at one moment, in bytes.
type memoryUse struct {
	allocated uint64 // ever
	live      uint64 // in objects, garbage included
	free      uint64 // held, and in no object
}

// A scavenger gives memory back to the operating system that a rush has left behind, once it is over. By
// itself the runtime keeps as much as the rush has needed, for the next one: with
// ten thousand connections that only wait, half as much again as they need.
type scavenger struct {
	last   memoryUse
	thrown uint64 // what had been allocated when memory was last given back
}

// due says whether memory is worth giving back, scavengeInterval after the last look:
// when little is asked, and there may be enough that nobody uses.
func (t *scavenger) due(now memoryUse) bool {
	quiet := now.allocated-t.last.allocated < uint64(scavengeInterval.Seconds()*idleAllocRate)
	t.last = now
	waste := now.free + now.allocated - t.thrown // or less: some of it is in use
	if !quiet || waste < max(minScavenge, now.live/4) {
		return false
	}
	t.thrown = now.allocated
	return true
}

// scavenge gives memory back whenever that is due, until ctx is done.
func scavenge(ctx context.Context) {
	var t scavenger
	tick := time.NewTicker(scavengeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.due(readMemoryUse()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// readMemoryUse asks the runtime.
func readMemoryUse() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return memoryUse{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}
