package cli

import (
	"runtime/debug"
	"runtime/metrics"
)

const (
	// frugalBytes is what the process may take before garbage is collected more often.
	frugalBytes = 100 << 20
	// frugalPercent is how much room for garbage is left beside what is in use beyond that.
	frugalPercent = 15
)

// A frugal keeps the memory of a command small that makes much garbage beside much that
// stays, at the cost of collecting more often: as a limit that would grow with what is
// in use, for the runtime's own makes it collect without end when it is reached.
type frugal struct {
	live   []metrics.Sample
	limit  int64
	before int64
}

func newFrugal() *frugal {
	f := &frugal{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}, limit: frugalBytes}
	f.before = debug.SetMemoryLimit(f.limit)
	return f
}

// end lets the runtime collect as it did before.
func (f *frugal) end() { debug.SetMemoryLimit(f.before) }

// adjust is called now and then.
func (f *frugal) adjust() {
	metrics.Read(f.live)
	live := int64(f.live[0].Value.Uint64())
	if limit := live + live*frugalPercent/100 + 20<<20; limit > f.limit {
		f.limit = limit
		debug.SetMemoryLimit(limit)
	}
}
