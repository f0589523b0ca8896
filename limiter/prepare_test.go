package limiter_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Preparing a limit never hides that it is not valid: neither its own fault nor that of a
// copy that was changed.
func TestLimitPrepare_KeepsTheCheck(t *testing.T) {
	valid := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 5, Window: time.Second}}
	if err := valid.Prepare(); err != nil {
		t.Fatal(err)
	}
	spoil := map[string]func(l *limiter.Limit){
		"no name":            func(l *limiter.Limit) { l.Name = "" },
		"a brace":            func(l *limiter.Limit) { l.Name = "{l}" },
		"no count":           func(l *limiter.Limit) { l.Rate.Count = 0 },
		"no window":          func(l *limiter.Limit) { l.Rate.Window = 0 },
		"an algorithm of 99": func(l *limiter.Limit) { l.Algorithm = 99 },
		"a scope of 99":      func(l *limiter.Limit) { l.Scope = 99 },
		"a burst":            func(l *limiter.Limit) { l.Burst = 2 },
		"steps":              func(l *limiter.Limit) { l.Steps = []time.Duration{time.Second} },
	}
	m := limiter.NewMemory(limiter.MemoryOptions{})
	for name, change := range spoil {
		l := valid // is not prepared itself
		change(&l)
		var d limiter.Decision
		claims := []limiter.Claim{{Limit: &l, Key: limiter.KeyOf("k"), Cost: 1}}
		if err := m.Take(t.Context(), claims, &d); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s in a copy: %v", name, err)
		}
		if err := l.Prepare(); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s: Prepare returns %v", name, err)
		}
		if err := limiter.CheckClaims(claims); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%s after Prepare: %v", name, err)
		}
	}
	for _, cost := range []int64{0, 6} {
		if err := (limiter.Claim{Limit: &valid, Cost: cost}).Check(); !errors.Is(err, limiter.ErrInvalidCost) {
			t.Errorf("a cost of %d: %v", cost, err)
		}
	}
	if err := (limiter.Claim{Limit: &valid, Cost: 5}).Check(); err != nil {
		t.Error(err)
	}
}

// Limits of one name count together, prepared or not, and each Memory by itself, also
// when they are used for the first time at the same time.
func TestLimitPrepare_CountsByName(t *testing.T) {
	rate := limiter.Rate{Count: 100, Window: time.Hour}
	limits := []*limiter.Limit{{Name: "a", Rate: rate}, {Name: "a", Rate: rate}, {Name: "b", Rate: rate}, {Name: "b", Rate: rate}}
	for _, l := range limits[1:] {
		if err := l.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	renamed := *limits[1] // a copy that counts by its own name
	renamed.Name = "b"
	limits = append(limits, &renamed)
	for range 2 {
		memories := []*limiter.Memory{limiter.NewMemory(limiter.MemoryOptions{}), limiter.NewMemory(limiter.MemoryOptions{})}
		for _, m := range memories {
			var all sync.WaitGroup
			for _, l := range slices.Backward(limits) {
				for range 5 {
					all.Go(func() {
						var d limiter.Decision
						if err := m.Take(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1}}, &d); err != nil || !d.Allowed {
							t.Errorf("%+v %v", d, err)
						}
					})
				}
			}
			all.Wait()
		}
		for _, m := range memories {
			for i, want := range []int64{90, 90, 85, 85, 85} {
				var d limiter.Decision
				if err := m.Peek(t.Context(), []limiter.Claim{{Limit: limits[i], Key: limiter.KeyOf("k"), Cost: 1}}, &d); err != nil || d.Outcomes[0].Remaining != want {
					t.Errorf("limit %d: %+v %v, want %d", i, d, err, want)
				}
			}
		}
	}
}
