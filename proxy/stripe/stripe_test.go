package stripe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/weir-proxy/weir/test/rounds"
)

func TestNumbers_OwnIsAStripe(t *testing.T) {
	for _, processors := range []int{0, 1, 3, 8, 1000} {
		n := NewFor(processors)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 1000 {
					if own := n.Own(); own < 0 || own >= n.Count() {
						t.Errorf("%d processors: stripe %d of %d", processors, own, n.Count())
						return
					}
				}
			})
		}
		all.Wait()
	}
	if got := NewFor(1000).Count(); got != maxStripes {
		t.Errorf("%d stripes; want %d", got, maxStripes)
	}
}

// A processor keeps its stripe, and shares it with no other one, whatever the garbage collector does.
func TestNumbers_EachProcessorHasItsOwn(t *testing.T) {
	processors := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(processors)
	n := NewFor(4)
	var owners [4]atomic.Int64 // by stripe: the processor, from 1
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 200 {
				if i%50 == 0 {
					runtime.GC()
				}
				processor := procPin()
				owner := &owners[n.Own()]
				owner.CompareAndSwap(0, int64(processor)+1)
				had := owner.Load() - 1
				procUnpin()
				if had != int64(processor) {
					t.Errorf("processors %d and %d have the same stripe", had, processor)
					return
				}
				runtime.Gosched()
			}
		})
	}
	all.Wait()
}

func TestNumbers_OwnDoesNotAllocate(t *testing.T) {
	n := NewFor(4)
	if allocated := rounds.Allocations(1000, func() { n.Own() }); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// While somebody uses it all the time the sum is never zero, whoever else comes and goes.
func TestUsers_SumOfALastingUserIsNeverZero(t *testing.T) {
	u := NewUsers(3)
	u.Add(2, 1)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 3 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					u.Add(i, 1)
					u.Add(i, -1)
				}
			}
		})
	}
	for range 20_000 {
		if u.Sum() < 1 {
			t.Error("no user")
			break
		}
	}
	close(stop)
	others.Wait()
	u.Add(2, -1)
	if got := u.Sum(); got != 0 {
		t.Errorf("%d users in the end", got)
	}
}

func TestUsers_StripesShareNoLine(t *testing.T) {
	if size := unsafe.Sizeof(line{}); size%LineSize != 0 {
		t.Errorf("a stripe has %d bytes", size)
	}
}
