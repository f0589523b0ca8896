package limiter_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
)

// A claim gets the same outcomes alone as beside one that is always granted.
func TestTake_OneClaimAsAmongSeveral(t *testing.T) {
	algorithms := []limiter.Algorithm{
		limiter.TokenBucket, limiter.FixedWindow, limiter.SlidingWindow, limiter.GCRA, limiter.Concurrent, limiter.Distinct, limiter.Cooldown, limiter.SlidingLog,
	}
	generous := limiter.Limit{Name: "generous", Rate: limiter.Rate{Count: limiter.MaxCount, Window: time.Hour}, Algorithm: limiter.FixedWindow}
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, uint64(a)))
			h := newHand()
			alone, beside := limiter.NewMemory(limiter.MemoryOptions{Clock: h.now}), limiter.NewMemory(limiter.MemoryOptions{Clock: h.now})
			l := limitertest.LimitOf(a, "l", limiter.Rate{Count: 5, Window: time.Second})
			var one, two limiter.Decision
			granted, refused := 0, 0
			for range 3000 {
				h.advance(time.Duration(random.IntN(60)) * time.Millisecond)
				claims := []limiter.Claim{
					{Limit: l, Key: limiter.KeyOf(string(rune('a' + random.IntN(2)))), Cost: 1, Value: limiter.KeyOf(string(rune('0' + random.IntN(8))))},
					{Limit: &generous, Key: limiter.KeyOf("k"), Cost: 1},
				}
				switch random.IntN(40) {
				case 0:
					claims[0].Limit = &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 3, Window: time.Second}, Algorithm: limiter.TokenBucket} // reloaded with another algorithm
				case 1:
					for _, m := range []*limiter.Memory{alone, beside} {
						if err := m.Ban(t.Context(), claims[:1], 100*time.Millisecond); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := alone.Take(t.Context(), claims[:1], &one); err != nil {
					t.Fatal(err)
				}
				if err := beside.Take(t.Context(), claims, &two); err != nil {
					t.Fatal(err)
				}
				if one.Outcomes[0] != two.Outcomes[0] || len(one.Outcomes) != 1 || one.Allowed != two.Allowed || one.Wait != two.Wait || !one.At.Equal(two.At) {
					t.Fatalf("alone %+v, beside another claim %+v", one, two)
				}
				if one.Allowed == one.Permit.IsZero() || one.Allowed && (one.Permit.ID == two.Permit.ID || !one.Permit.At.Equal(one.At)) {
					t.Fatalf("allowed %v with the permit %+v", one.Allowed, one.Permit)
				}
				if !one.Allowed {
					refused++
					continue
				}
				granted++
				if random.IntN(3) == 0 {
					if err := alone.Refund(t.Context(), claims[:1], one.Permit); err != nil {
						t.Fatal(err)
					}
					if err := beside.Refund(t.Context(), claims, two.Permit); err != nil {
						t.Fatal(err)
					}
				}
			}
			if granted < 100 || refused < 100 {
				t.Errorf("%d granted and %d refused; want some hundreds of both", granted, refused)
			}
			if a, b := keysOf(alone), keysOf(beside)-1; a != b {
				t.Errorf("%d keys alone, %d beside another", a, b)
			}
		})
	}
}

func keysOf(m *limiter.Memory) int {
	n, _ := m.Keys()
	return n
}
