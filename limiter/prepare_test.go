package limiter_test

import (
	"errors"
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
