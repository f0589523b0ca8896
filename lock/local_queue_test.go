package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestGate_LetsInOneByOneInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		first, err := g.wait(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 5 {
			go func() {
				p, err := g.wait(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				p.leave(0)
			}()
			synctest.Wait()
		}
		if len(order) != 0 {
			t.Fatal("somebody came in while the gate was taken")
		}
		first.leave(0)
		synctest.Wait()
		for i, got := range order {
			if i != got {
				t.Fatalf("order = %v", order)
			}
		}
		if len(order) != 5 || len(g.byName) != 0 {
			t.Errorf("%d came in, %d gates left; want 5 and 0", len(order), len(g.byName))
		}
	})
}

func TestGate_WhoLeavesTheQueueHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		first, _ := g.wait(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		go g.wait(ctx, "a")
		synctest.Wait()
		in := false
		go func() {
			p, _ := g.wait(t.Context(), "a")
			in = true
			p.leave(0)
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		first.leave(0)
		synctest.Wait()
		if !in || len(g.byName) != 0 {
			t.Errorf("in = %v, %d gates left", in, len(g.byName))
		}
	})
}

func TestGate_StandsBackWhenOthersWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		p, _ := g.wait(t.Context(), "a")
		start := time.Now()
		for range maxStreak + 1 {
			next := make(chan *ticket)
			go func() {
				p, _ := g.wait(t.Context(), "a")
				next <- p
			}()
			synctest.Wait()
			p.leave(1)
			p = <-next
		}
		if got := time.Since(start); got != yieldDelay {
			t.Errorf("stood back for %v in %d hand-overs, want %v", got, maxStreak+1, yieldDelay)
		}
		p.leave(0)
	})
}

func TestGate_StandsBackForOthersWhenAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &localQueues{byName: map[string]*localQueue{}}
		start := time.Now()
		for range 2*maxStreak + 1 {
			p, err := g.wait(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			p.leave(1)
		}
		if got := time.Since(start); got != 2*yieldDelay {
			t.Errorf("stood back for %v in %d rounds, want %v", got, 2*maxStreak+1, 2*yieldDelay)
		}
		<-time.After(3 * streakTTL)
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.byName) != 0 {
			t.Errorf("%d gates are left, want none", len(g.byName))
		}
	})
}
