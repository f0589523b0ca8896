package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

func TestScope_HasNames(t *testing.T) {
	for name, want := range map[string]limiter.Scope{"overall": limiter.Overall, "per_instance": limiter.PerClient} {
		if got, err := limiter.ParseScope(name); got != want || err != nil || got.String() != name {
			t.Errorf("%q is %v %v, want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "client", "OVERALL"} {
		if _, err := limiter.ParseScope(name); !errors.Is(err, limiter.ErrInvalidLimit) {
			t.Errorf("%q: %v", name, err)
		}
	}
	l := limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 1, Window: time.Second}, Scope: limiter.PerClient}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	l.Scope++
	if err := l.Check(); !errors.Is(err, limiter.ErrInvalidLimit) || l.Scope.String() != "scope 2" {
		t.Errorf("%v: %v", l.Scope, err)
	}
}

// A Memory is one client: there is nobody to count apart from.
func TestMemory_IsOneClient(t *testing.T) {
	m := limiter.NewMemory(limiter.MemoryOptions{})
	l := &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 2, Window: time.Hour}, Scope: limiter.PerClient}
	for i, want := range []bool{true, true, false} {
		var d limiter.Decision
		err := m.Take(t.Context(), []limiter.Claim{{Limit: l, Key: limiter.KeyOf("k"), Cost: 1}}, &d)
		if err != nil || d.Allowed != want {
			t.Errorf("take %d: %+v %v", i, d, err)
		}
	}
}
