package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// scavengeInterval is how often memory usage is read. Reading it takes a few microseconds.
	scavengeInterval = 2 * time.Second
	// idleAllocRate is the rate of allocations, in bytes per second, below which Weir is considered
	// idle: that of some hundreds of requests.
	idleAllocRate = 4 << 20
	// minScavenge is the minimum number of bytes to return. At least a quarter of the live heap
	// must be free as well, because scavenging costs more for a larger heap.
	minScavenge = 8 << 20
)

// A memoryUse is the memory usage at one moment, in bytes.
type memoryUse struct {
	allocated uint64 // since the start of the process
	live      uint64 // in objects, including garbage
	free      uint64 // not in objects, and not returned to the operating system
}

// A scavenger returns memory to the operating system after a peak of load. By itself the runtime
// keeps as much memory as the peak needed: with ten thousand idle connections, half as much again
// as they use.
type scavenger struct {
	last               memoryUse
	allocatedAtRelease uint64 // total allocation when memory was last returned
}

// due reports whether returning memory is worthwhile, scavengeInterval after the last call: if few
// bytes are allocated, and enough may be free.
func (s *scavenger) due(now memoryUse) bool {
	quiet := now.allocated-s.last.allocated < uint64(scavengeInterval.Seconds()*idleAllocRate)
	s.last = now
	waste := now.free + now.allocated - s.allocatedAtRelease // an upper bound: some of it is in use
	if !quiet || waste < max(minScavenge, now.live/4) {
		return false
	}
	s.allocatedAtRelease = now.allocated
	return true
}

// scavenge returns the memory of the start, and memory whenever that is due, until ctx is done.
func scavenge(ctx context.Context) {
	_ = releaseProgram() // otherwise it stays
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

// readMemoryUse reads the memory usage from the runtime.
func readMemoryUse() memoryUse {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return memoryUse{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}
