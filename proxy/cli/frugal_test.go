package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestFrugal_LimitGrowsWithWhatIsInUse(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	f := newGCTuner()
	if got := debug.SetMemoryLimit(-1); got != gcTunerBytes {
		t.Errorf("limit %d; want %d", got, gcTunerBytes)
	}
	f.adjust()
	kept := make([]byte, 2*gcTunerBytes)
	for i := range kept { // so that it is in use
		kept[i] = 1
	}
	runtime.GC()
	f.adjust()
	if got := debug.SetMemoryLimit(-1); got <= int64(len(kept)) {
		t.Errorf("limit %d with %d bytes in use; the runtime would collect without end", got, len(kept))
	}
	runtime.KeepAlive(kept)
	f.end()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("limit %d; want %d as before", got, before)
	}
}
