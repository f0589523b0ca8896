package limiter_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// grownBy is how much heap f leaves in use.
func grownBy(f func()) int64 {
	before := heap()
	f()
	return heap() - before
}

// A key costs little, and as much as the Memory says it does: with one permit, and with a
// log beside its cell.
func TestMemory_AccountsForWhatAKeyTakes(t *testing.T) {
	const keys = 200_000
	for _, row := range []struct {
		name    string
		limit   *limiter.Limit
		permits int
		keys    int
		most    int64 // bytes a key
	}{
		{"one permit", rate("l", 60, time.Hour), 1, keys, 120},
		{"a counter", &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 60, Window: time.Hour}, Algorithm: limiter.GCRA}, 1, keys / 2, 120},
		{"a log", rate("l", 60, time.Hour), 8, keys / 4, 450},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := limiter.NewMemory(limiter.MemoryOptions{MaxKeys: 2 * row.keys, MaxBytes: 1 << 30})
			grown := grownBy(func() {
				claims := []limiter.Claim{{Limit: row.limit, Cost: 1}}
				var d limiter.Decision
				for i := range row.keys * row.permits {
					claims[0].Key = numbered(i % row.keys)
					if err := m.Take(t.Context(), claims, &d); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
				}
			})
			counted, said := m.Keys()
			runtime.KeepAlive(m)
			t.Logf("%d bytes a key, %d by its own account", grown/int64(counted), said/int64(counted))
			if counted != row.keys || grown > row.most*int64(row.keys) {
				t.Errorf("%d bytes for %d keys; want %d keys of %d at most", grown, counted, row.keys, row.most)
			}
			if off := 100 * (said - grown) / grown; off < -10 || off > 10 {
				t.Errorf("it says %d bytes, which is %d%% off %d", said, off, grown)
			}
		})
	}
}

// What is noted of another store's decisions costs less still.
func TestNote_AccountsForWhatAKeyTakes(t *testing.T) {
	const keys = 100_000
	m := limiter.NewMemory(limiter.MemoryOptions{})
	claims := []limiter.Claim{{Limit: rate("l", 60, time.Hour), Cost: 1}}
	said := limiter.Decision{Allowed: true, Outcomes: []limiter.Outcome{{Allowed: true, Remaining: 59}}}
	grown := grownBy(func() {
		for i := range 10 * keys {
			claims[0].Key = numbered(i % keys)
			m.Mirror(claims, &said, 4)
		}
	})
	counted, bytes := m.Keys()
	runtime.KeepAlive(m)
	t.Logf("%d bytes a key, %d by its own account", grown/keys, bytes/keys)
	if counted != keys || grown > 90*keys {
		t.Errorf("%d bytes for %d keys; want %d keys of 90 at most", grown, counted, keys)
	}
	if off := 100 * (bytes - grown) / grown; off < -10 || off > 10 {
		t.Errorf("it says %d bytes, which is %d%% off %d", bytes, off, grown)
	}
}
