package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// standingOf is how the one claim stands in m.
func standingOf(t *testing.T, m *limiter.Memory, c []limiter.Claim) limiter.KeyStatus {
	t.Helper()
	in, err := m.Inspect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return in.Statuses[0]
}

func TestChange_Apply(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.GCRA, limiter.Distinct} {
		t.Run(a.String(), func(t *testing.T) {
			now := time.UnixMilli(1_800_000_000_000)
			m := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
			c := []limiter.Claim{{
				Limit: &limiter.Limit{Name: "a.b:1h", Rate: limiter.Rate{Count: 5, Window: time.Hour}, Algorithm: a},
				Key:   limiter.KeyOf("k"), Cost: 1,
			}}
			for i := range byte(5) {
				var d limiter.Decision
				c[0].Value = limiter.Key{i}
				if err := m.Take(t.Context(), c, &d); err != nil || !d.Allowed {
					t.Fatalf("%+v %v", d, err)
				}
			}
			for _, step := range []struct {
				limiter.Change
				left   int64
				banned time.Duration
			}{
				{limiter.Change{Action: limiter.ActionGrant, Grant: 2}, 2, 0},
				{limiter.Change{Action: limiter.ActionBan, Ban: time.Minute}, 2, time.Minute},
				{limiter.Change{Action: limiter.ActionBan}, 2, 0},
				{limiter.Change{Action: limiter.ActionGrant, Grant: 1_000_000}, 5, 0},
				{limiter.Change{Action: limiter.ActionBan, Ban: time.Minute}, 5, time.Minute},
				{limiter.Change{Action: limiter.ActionReset}, 5, 0},
			} {
				if err := step.Apply(t.Context(), m, c); err != nil {
					t.Fatal(err)
				}
				if got := standingOf(t, m, c); got.Remaining != step.left || got.BannedFor != step.banned {
					t.Errorf("after %+v: %+v, want %d left and a ban of %v", step.Change, got, step.left, step.banned)
				}
			}
			if err := (limiter.Change{Action: "drop"}).Apply(t.Context(), m, c); !errors.Is(err, limiter.ErrInvalidLimit) {
				t.Errorf("%v; want ErrLimit", err)
			}
		})
	}
}
