package cli

import (
	"runtime/debug"
	"runtime/metrics"
)

const (
	// gcTunerBytes is the memory limit below which the collector runs as usual.
	gcTunerBytes = 100 << 20
	// gcTunerPercent is the headroom above the live heap, once that is larger.
	gcTunerPercent = 15
)

// A gcTuner keeps the memory of a command with a large live heap and much garbage small,
// at the cost of more collections. It sets a memory limit that grows with the live heap:
// with a fixed limit, the collector would run continuously once the live heap reaches
// it.
type gcTuner struct {
	live   []metrics.Sample
	limit  int64
	before int64
}

func newGCTuner() *gcTuner {
	f := &gcTuner{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}, limit: gcTunerBytes}
	f.before = debug.SetMemoryLimit(f.limit)
	return f
}

// end restores the previous memory limit.
func (f *gcTuner) end() { debug.SetMemoryLimit(f.before) }

// adjust updates the limit. It is called periodically.
func (f *gcTuner) adjust() {
	metrics.Read(f.live)
	live := int64(f.live[0].Value.Uint64())
	if limit := live + live*gcTunerPercent/100 + 20<<20; limit > f.limit {
		f.limit = limit
		debug.SetMemoryLimit(limit)
	}
}
