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

// All groups of a decision count from one time, however long it takes: a later one would be younger than the permit, and
// what it took for a new key would not be given back.
func TestMemory_GroupsCountFromOneTime(t *testing.T) {
	for a := range limiter.NumAlgorithms {
		t.Run(a.String(), func(t *testing.T) {
			h := newHand()
			m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { h.advance(time.Millisecond); return h.now() }})
			beside := limitertest.LimitOf(a, "beside", limiter.Rate{Count: 1, Window: time.Hour})
			claims := []limiter.Claim{
				{Limit: rate("deciding", 9, time.Hour), Key: numbered(1), Cost: 1},
				{Limit: beside, Key: numbered(2), Value: numbered(3), Cost: 1, Group: 1},
			}
			var d limiter.Decision
			if err := m.Take(t.Context(), claims, &d); err != nil || !d.Allowed || !d.Outcomes[1].Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			if err := m.Refund(t.Context(), claims, d.Permit); err != nil {
				t.Fatal(err)
			}
			claims[1].Group = 0
			if m.Peek(t.Context(), claims[1:], &d); d.Outcomes[0].Remaining != 1 {
				t.Errorf("%d left after the refund, want 1", d.Outcomes[0].Remaining)
			}
		})
	}
}

func TestMemory_Conversion(t *testing.T) {
	limitertest.RunConversion(t, func(*testing.T) limitertest.Subject {
		h := newHand()
		return limitertest.Subject{Store: limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}), Advance: h.advance}
	})
}
