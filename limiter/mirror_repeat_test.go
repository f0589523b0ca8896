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
