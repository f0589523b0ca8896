package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClosers_LastFirst(t *testing.T) {
	var c closers
	var closed []string
	broken := errors.New("broken")
	for _, name := range []string{"store", "proxy", "requests"} {
		c.push(name, func(context.Context) error {
			closed = append(closed, name)
			if name == "proxy" {
				return broken
			}
			return nil
		})
	}
	if err := c.close(t.Context()); !errors.Is(err, broken) || !slices.Equal(closed, []string{"requests", "proxy", "store"}) {
		t.Errorf("closed %v, %v; want the last first, and all in spite of the error", closed, err)
	}
	if err := c.close(t.Context()); err != nil || len(closed) != 3 {
		t.Errorf("closed again: %v, %v; want nothing", closed, err)
	}
}

// A part that hangs is named and left behind, after its own time and not before.
func TestClosers_OneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c closers
		var storeAt time.Duration
		began, free := time.Now(), make(chan struct{})
		c.push("store", func(context.Context) error { storeAt = time.Since(began); return nil })
		c.push("proxy", func(context.Context) error { <-free; return nil })
		c.pushWithin("requests", time.Minute, func(context.Context) error { time.Sleep(59 * time.Second); return nil })
		err := c.close(t.Context())
		if !errors.Is(err, errCloseTimeout) || !strings.Contains(err.Error(), "close proxy: ") || strings.Contains(err.Error(), "requests") {
			t.Errorf("error %v; want the name of what hangs, and no other", err)
		}
		if want := 59*time.Second + closeTimeout; storeAt != want {
			t.Errorf("the store was closed after %v; want %v", storeAt, want)
		}
		close(free)
	})
}

// The context of a part ends with its time, so that it can give up in order.
func TestClosers_ContextEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c closers
		c.push("proxy", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		began := time.Now()
		if err := c.close(t.Context()); err == nil || time.Since(began) != closeTimeout {
			t.Errorf("closed after %v: %v; want %v and an error", time.Since(began), err, closeTimeout)
		}
	})
}

func TestTasks_EndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTasks()
		for _, name := range []string{"a", "b"} {
			all.start(name, func(ctx context.Context) { <-ctx.Done() })
		}
		synctest.Wait()
		if err := errors.Join(all.stop(t.Context()), all.wait(t.Context())); err != nil {
			t.Errorf("stop and wait: %v", err)
		}
	})
}

func TestTasks_NamesThoseThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, free := newTasks(), make(chan struct{})
		all.start("leader", func(context.Context) { <-free })
		all.start("peers", func(context.Context) { <-free })
		all.start("watcher", func(ctx context.Context) { <-ctx.Done() })
		all.stop(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := all.wait(ctx); !errors.Is(err, errCloseTimeout) || !strings.Contains(err.Error(), "leader, peers:") || strings.Contains(err.Error(), "watcher") {
			t.Errorf("wait: %v; want the names of those two", err)
		}
		close(free)
	})
}

// Tasks that have ended are not late, also if nobody waits any more.
func TestTasks_ThatHaveEndedAreNotLate(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := newTasks().wait(over); err != nil {
			t.Fatalf("wait: %v", err)
		}
	}
}
