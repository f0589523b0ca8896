package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestLead_CampaignsAgainAfterALoss(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		mine := errors.New("mine")
		terms := 0
		err := Lead(ctx, lk, func(ctx context.Context) {
			terms++
			if terms == 3 {
				cancel(mine)
				<-ctx.Done()
				return
			}
			b.say(func() { b.refuse = true })
			<-ctx.Done()
			if got := context.Cause(ctx); got != ErrLost {
				t.Errorf("cause = %v, want ErrLost", got)
			}
			b.say(func() { b.refuse = false })
		})
		if err != mine || terms != 3 {
			t.Errorf("Lead = %v after %d terms, want the cause of its context after 3", err, terms)
		}
	})
}

func TestLead_StopsATenthOfTheLeaseBeforeItsEnd(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sent := time.Now()
		Lead(ctx, lk, func(inner context.Context) {
			b.say(func() { b.fail = errors.New("no answer") })
			<-inner.Done()
			if got, want := time.Since(sent), 27*time.Second-302*time.Millisecond; got != want {
				t.Errorf("work was stopped %v after the lock was asked for, want %v", got, want)
			}
			cancel()
		})
	})
}

func TestLead_TriesAgainAfterErrors(t *testing.T) {
	virtual(t, func(t *testing.T, b *virtualLock, lk *Lock) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b.fail = errors.New("no answer")
		time.AfterFunc(time.Minute, func() { b.say(func() { b.fail = nil }) })
		led := false
		Lead(ctx, lk, func(context.Context) {
			led = true
			cancel()
		})
		if !led {
			t.Error("did not lead when Redis was back")
		}
	})
}

// A leased is a lock with a lease of its own.
type leased struct {
	Lockable
	lease time.Duration
}

func (l leased) Lock(ctx context.Context, options ...LockOption) (*Hold, error) {
	return l.Lockable.Lock(ctx, append(options, WithLease(l.lease))...)
}

func TestLead_EndsWithTheLockerOrABadName(t *testing.T) {
	w := newTestServer(t)
	wantErr(t, Lead(ctxOf(t), w.locker().Reentrant(""), func(context.Context) {}), ErrInvalidName)
	wantErr(t, Lead(within(t, 10*time.Second), leased{w.locker().Reentrant("a"), time.Millisecond}, func(context.Context) {}), ErrInvalidLease)
	l := w.locker()
	done := make(chan error)
	started := make(chan struct{})
	go func() {
		done <- Lead(ctxOf(t), l.Reentrant("a"), func(ctx context.Context) {
			close(started)
			<-ctx.Done()
		})
	}()
	<-started
	l.Close()
	wantErr(t, <-done, ErrClosed)
	w.empty()
}

func TestLead_OneAtATimeAndTheNextFollows(t *testing.T) {
	w := newTestServer(t)
	var leading, terms atomic.Int64
	ctx, cancel := context.WithCancel(ctxOf(t))
	defer cancel()
	var done []chan error
	for range 3 {
		lk := w.locker().Fenced("a")
		var last int64
		done = append(done, started(func() error {
			return Lead(ctx, lk, func(ctx context.Context) {
				if leading.Add(1) != 1 {
					t.Error("two leaders")
				}
				if token := TokenFrom(ctx); token <= last {
					t.Errorf("token %d after %d", token, last)
				} else {
					last = token
				}
				if terms.Add(1) == 4 {
					cancel()
				}
				leading.Add(-1)
			})
		}))
	}
	for _, d := range done {
		wantErr(t, <-d, context.Canceled)
	}
}

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
