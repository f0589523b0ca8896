package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// scavengeInterval is the interval of checks, each of which costs a few microseconds.
	scavengeInterval = 2 * time.Second
	// idleAllocRate is the maximum allocation rate, in bytes per second, at which Weir
	// counts as idle: some hundreds of requests.
	idleAllocRate = 4 << 20
	// minScavenge is the minimum number of bytes to return; also at least a quarter of the
	// memory in use, because the cost grows with that.
	minScavenge = 8 << 20
)

// A memoryUse is a snapshot of memory statistics, in bytes.
type memoryUse struct {
	allocated uint64 // total since the start
	live      uint64 // in objects, including garbage
	free      uint64 // held, but not in objects
}

// A scavenger returns memory to the operating system after a peak. The runtime keeps as
// much as the peak needed: with ten thousand idle connections, half as much again as they
// need.
type scavenger struct {
	last   memoryUse
	thrown uint64 // total allocated at the last scavenge
}

// due reports whether returning memory is worthwhile, scavengeInterval after the last
// check: allocation is low, and enough memory may be unused.
func (t *scavenger) due(now memoryUse) bool {
	quiet := now.allocated-t.last.allocated < uint64(scavengeInterval.Seconds()*idleAllocRate)
	t.last = now
	waste := now.free + now.allocated - t.thrown // an upper bound: some of it is in use
	if !quiet || waste < max(minScavenge, now.live/4) {
		return false
	}
	t.thrown = now.allocated
	return true
}

// scavenge returns memory whenever that is due, until ctx is done.
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

// readMemoryUse reads the runtime metrics.
func readMemoryUse() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return memoryUse{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}
