package golden_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/golden"
)

// A failing store is a Memory that can be made to fail.
type failing struct {
	*limiter.Memory
	fails atomic.Bool
}

func (f *failing) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if f.fails.Load() {
		return errors.New("as the test has it")
	}
	return f.Memory.Take(ctx, claims, d)
}

// What happens with counts in memory is what happened when the hashes were written.
func TestGolden_InMemory(t *testing.T) {
	golden.Compare(t, "memory", golden.Seeds, func(t *testing.T, file string, seed uint64) (record string) {
		synctest.Test(t, func(t *testing.T) {
			store := &failing{Memory: limiter.NewMemory(limiter.MemoryOptions{})}
			record = golden.Record(t, file, seed, golden.Stand{
				Store: store, Advance: time.Sleep, Settle: synctest.Wait,
				Fail: func() { store.fails.Store(true) }, Heal: func() { store.fails.Store(false) },
			})
		})
		return record
	})
}
