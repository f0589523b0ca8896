package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often memory is looked at. It costs a few microseconds.
	lookEvery = 2 * time.Second
	// quietRate is how many bytes a second may be allocated, at most, for Weir to
	// be quiet: some hundreds of requests.
	quietRate = 4 << 20
	// worthwhile is how many bytes there must be to give back, at least; and a
	// quarter of what is in use, since finding them costs the more the more that is.
	worthwhile = 8 << 20
)

// A use is how memory is used at one moment, in bytes.
type use struct {
	allocated uint64 // ever
	live      uint64 // in objects, garbage included
	free      uint64 // held, and in no object
}

// A scavenger gives memory back to the operating system that a rush has left behind, once it is over. By
// itself the runtime keeps as much as the rush has needed, for the next one: with
// ten thousand connections that only wait, half as much again as they need.
type scavenger struct {
	last   use
	thrown uint64 // what had been allocated when memory was last given back
}

// due says whether memory is worth giving back, lookEvery after the last look:
// when little is asked, and there may be enough that nobody uses.
func (t *scavenger) due(now use) bool {
	quiet := now.allocated-t.last.allocated < uint64(lookEvery.Seconds()*quietRate)
	t.last = now
	waste := now.free + now.allocated - t.thrown // or less: some of it is in use
	if !quiet || waste < max(worthwhile, now.live/4) {
		return false
	}
	t.thrown = now.allocated
	return true
}

// scavenge gives memory back whenever that is due, until ctx is done.
func scavenge(ctx context.Context) {
	var t scavenger
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if t.due(used()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// used asks the runtime.
func used() use {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	return use{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}
