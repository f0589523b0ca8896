package locks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A thousand waiters in one process cost Redis what one costs.
func TestCrowd_CostsThreeScriptCallsAHandOver(t *testing.T) {
	s, rdb := server(t)
	const waiters = 1000
	first := held(t, process(t, s.Addr).Reentrant("a"))
	lk := process(t, s.Addr, lock.WithPollInterval(time.Hour)).Reentrant("a")
	before := redistest.Scripts(t, rdb).Calls
	var all sync.WaitGroup
	ctx := minute(t)
	for range waiters {
		all.Go(func() {
			h, err := lk.Lock(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			if err := h.Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	await.Until(t, "one waiter listens", func() bool { return listeners(t, rdb, "redisson_lock__channel:{a}") == 1 })
	released(t, first)
	all.Wait()
	after := redistest.Scripts(t, rdb).Calls
	if calls := after - before; calls > 3*waiters {
		t.Errorf("%d script calls for %d hand-overs, want at most 3 each", calls, waiters)
	}
	await.Until(t, "nobody listens", func() bool { return listeners(t, rdb, "redisson_lock__channel:{a}") == 0 })
}

// Two processes with many waiters each share a lock: local hand-overs are
// bounded, so that both come through at any time.
func TestCrowd_DoesNotStarveAnotherProcess(t *testing.T) {
	s, _ := server(t)
	busy := process(t, s.Addr, lock.WithPollInterval(time.Hour)).Reentrant("a")
	ctx, cancel := context.WithCancel(minute(t))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := lock.Do(ctx, busy, func(context.Context) error { return nil }); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	other := process(t, s.Addr, lock.WithPollInterval(time.Hour)).Reentrant("a")
	for range 5 {
		released(t, held(t, other))
	}
	cancel()
	all.Wait()
}
