package limiter_test

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A refusal that a store repeats is recorded once by each Memory, whoever got it first, and
// is as good as one that was made anew.
func TestMirror_RecordsARepeatedRefusalOnce(t *testing.T) {
	c := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 5, Window: time.Hour}}, Key: limiter.KeyOf("k"), Cost: 1}}
	refusal := func(remaining int64, of *limiter.Refusal) *limiter.Decision {
		return &limiter.Decision{Wait: time.Minute, Outcomes: []limiter.Outcome{{Remaining: remaining, Wait: time.Minute}}, Repeats: of}
	}
	left := func(m *limiter.Memory) int64 {
		t.Helper()
		var d limiter.Decision
		if err := m.Peek(t.Context(), c, &d); err != nil {
			t.Fatal(err)
		}
		return d.Outcomes[0].Remaining
	}
	for range 2 { // a second Memory has its own record
		var one limiter.Refusal
		m, other := limiter.NewMemory(limiter.MemoryOptions{}), limiter.NewMemory(limiter.MemoryOptions{})
		m.Mirror(c, refusal(0, &one), 1)
		m.Mirror(c, refusal(3, &one), 1) // would change the record
		other.Mirror(c, refusal(0, &one), 1)
		if left(m) != 0 || left(other) != 0 {
			t.Errorf("%d and %d are left, want 0", left(m), left(other))
		}
		again := limiter.NewMemory(limiter.MemoryOptions{})
		again.Mirror(c, refusal(0, &one), 1)
		again.Mirror(c, refusal(3, new(limiter.Refusal)), 1)
		if left(again) != 3 {
			t.Errorf("%d are left after another refusal, want 3", left(again))
		}
	}
}

// What the other store has charged counts here when it decides in its place, as what it has granted does.
func TestMirrorCharge_CountsInAnOutage(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow} {
		m := limiter.NewMemory(limiter.MemoryOptions{})
		l := &limiter.Limit{Name: "tokens:1h", Rate: limiter.Rate{Count: 100, Window: time.Hour}, Algorithm: a}
		c := []limiter.Claim{{Limit: l, Key: limiter.KeyOf("ann"), Cost: 10}}
		m.Mirror(c, &limiter.Decision{Allowed: true, At: time.Now(), Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 90}}}, 1)
		c[0].Cost = 50
		m.MirrorCharge(c)
		c[0].Cost = 1
		var d limiter.Decision
		if err := m.Peek(t.Context(), c, &d); err != nil || d.Outcomes[0].Remaining != 40 {
			t.Errorf("%s: %+v, %v; want 40 left", a, d, err)
		}
	}
}
