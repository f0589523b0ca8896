package decisions

import (
	"testing"
	"time"
	"unsafe"

	"github.com/weir-proxy/weir/limiter"
)

// What is said of the memory in ring.go and counters.go.
func TestObserver_Memory(t *testing.T) {
	const records = numShards * (refusedRecent + earlierRecent + allowedRecent)
	if size := unsafe.Sizeof(record{}) * records; size > 8<<20 {
		t.Errorf("the rings take %d bytes, %d a request; want 8 MB at most", size, unsafe.Sizeof(record{}))
	}
	one := unsafe.Sizeof(limiter.HeavyHitter[limiter.Key, Label]{})
	if size := one * topCounters * 2 * TopSlices; size > 200_000 {
		t.Errorf("a limit takes %d bytes, %d a key; want 200 KB at most", size, one)
	}
}

// A ring has no room for what has not come.
func TestObserver_UsesNoMemoryBefore(t *testing.T) {
	o := NewObserver()
	room := func() (n int) {
		for p := range o.recent.all() {
			n += len(p.records)
		}
		return n
	}
	if room() != 0 {
		t.Errorf("room for %d requests at first", room())
	}
	o.Record(&Request{Place: amongAll, ID: "a", Began: time.Now(), Outcome: RefusedByLimits})
	o.Record(&Request{Place: amongTheOther, ID: "b", Began: time.Now(), Outcome: Passed})
	if want := refusedRecent + allowedRecent; room() != want {
		t.Errorf("room for %d requests after a refusal and another, want %d", room(), want)
	}
}
