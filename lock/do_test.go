package lock

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestDo_RunsHeldAndGivesBack(t *testing.T) {
	w := newTestServer(t)
	l := w.locker().Reentrant("a")
	mine := errors.New("mine")
	err := Do(ctxOf(t), l, func(context.Context) error {
		refused(t, l)
		return mine
	})
	wantErr(t, err, mine)
	w.empty()
	func() {
		defer func() { recover() }()
		Do(ctxOf(t), l, func(context.Context) error { panic("work") })
	}()
	w.empty()
}

func TestDo_SaysLostAlthoughTheWorkDidNot(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		err := Do(t.Context(), lk, func(ctx context.Context) error {
			b.say(func() { b.refuse = true })
			<-ctx.Done()
			if got := context.Cause(ctx); got != ErrLost {
				t.Errorf("cause = %v, want ErrLost", got)
			}
			return nil
		})
		wantErr(t, err, ErrLost)
	})
}

func TestDo_WorkEndsWithTheCaller(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := Do(ctx, lk, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		wantErr(t, err, context.DeadlineExceeded)
	})
}
