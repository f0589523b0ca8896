package decisions

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// What is said of the memory in ring.go and ring.go.
func TestObserver_Memory(t *testing.T) {
	const records = numShards * (refusedRecent + earlierRecent + allowedRecent)
	if size := unsafe.Sizeof(record{}) * records; size > 8<<20 {
		t.Errorf("the rings take %d bytes, %d a request; want 8 MB at most", size, unsafe.Sizeof(record{}))
	}
	if size := unsafe.Sizeof(part{}); size%stripe.LineSize != 0 {
		t.Errorf("a part has %d bytes, so that it shares cache lines with others", size)
	}
	if one := unsafe.Sizeof(limiter.HeavyHitter[limiter.Key, Label]{}); 2*(TopSlices-1)*one >= keyMemory {
		t.Errorf("a key takes %d bytes a minute and list; want less than the %d of all", one, keyMemory)
	}
}

// However many limits there are, their counters keep to the memory, and use it.
func TestCounters_KeepToTheMemory(t *testing.T) {
	for limits, want := range map[int]int{0: 512, 1: 512, 25: 512, 26: 500, 100: 130, MaxCounters: 65} {
		if got := countedKeys(limits); got != want || got*limits*keyMemory > countersMemory {
			t.Errorf("%d keys are counted of each of %d limits, want %d in %d bytes", got, limits, want, countersMemory)
		}
	}
}

// The counters of a limit that stays shrink when there are more limits, and grow when there are fewer.
func TestCounters_ShareTheMemory(t *testing.T) {
	o, by := NewObserver(1), &key.Spec{Name: "k"}
	kept := o.Counter("r.kept", by)
	for minute, limits := range []int{1, MaxCounters, 1} {
		all := []*Counter{kept}
		for i := range limits - 1 {
			all = append(all, o.Counter(fmt.Sprint("r.", i), by))
		}
		o.KeepOnly(all)
		for n := range 1000 {
			kept.Count(0, int64(minute), limiter.KeyOf("k", fmt.Sprint(n)), func(*Label) {})
		}
		if got := len(kept.requests.Last(int64(minute), 1).Keys); got != countedKeys(limits) {
			t.Errorf("%d keys are counted of one of %d limits, want %d", got, limits, countedKeys(limits))
		}
	}
}

// A ring has no room for what has not come.
func TestObserver_UsesNoMemoryBefore(t *testing.T) {
	o := NewObserver(1)
	room := func() (n int) {
		for range o.all {
			n++
		}
		return n
	}
	if room() != 0 {
		t.Errorf("room for %d requests at first", room())
	}
	o.Record(&Request{Place: amongAll, ID: "a", Began: time.Now(), Facts: Facts{Outcome: RefusedByLimits}})
	o.Record(&Request{Place: amongTheOther, ID: "b", Began: time.Now(), Facts: Facts{Outcome: Passed}})
	if want := refusedRecent + allowedRecent; room() != want {
		t.Errorf("room for %d requests after a refusal and another, want %d", room(), want)
	}
}
