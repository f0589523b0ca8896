package limiter_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A hand is a clock that moves when it is told to.
type hand struct{ ms atomic.Int64 }

func (h *hand) now() time.Time { return time.UnixMilli(h.ms.Load()) }

func (h *hand) advance(d time.Duration) { h.ms.Add(d.Milliseconds()) }

func newHand() *hand {
	h := new(hand)
	h.ms.Store(1_800_000_000_000)
	return h
}

func TestMemory_KeepsTheContract(t *testing.T) {
	limitertest.Run(t, func(*testing.T) limitertest.Subject {
		h := newHand()
		return limitertest.Subject{
			Store:   limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}),
			Advance: h.advance,
			Steps:   100, Calls: rounds.Of(15_000),
		}
	})
}

func TestMemory_Conversion(t *testing.T) {
	limitertest.RunConversion(t, func(*testing.T) limitertest.Subject {
		h := newHand()
		return limitertest.Subject{Store: limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}), Advance: h.advance}
	})
}
