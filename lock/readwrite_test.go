package lock

import (
	"context"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

func TestReadWrite_ReadersShareAndExcludeTheWriter(t *testing.T) {
	w := newTestServer(t)
	one, two := w.locker().ReadWrite("a"), w.locker().ReadWrite("a")
	r1, r2, r3 := locked(t, one.Read()), locked(t, one.Read()), locked(t, two.Read())
	refused(t, one.Write())
	unlocked(t, r1)
	unlocked(t, r2)
	refused(t, two.Write())
	unlocked(t, r3)
	wr := locked(t, two.Write())
	refused(t, one.Read())
	refused(t, one.Write())
	unlocked(t, wr)
	w.empty()
}

func TestReadWrite_TheWriterWakesAllReaders(t *testing.T) {
	w := newTestServer(t)
	wr := locked(t, w.locker().ReadWrite("a").Write())
	var waiting []func(*testing.T) *Hold
	for range 3 {
		l := w.locker(WithPollInterval(time.Hour))
		for range 3 {
			waiting = append(waiting, beside(func() (*Hold, error) { return l.ReadWrite("a").Read().Lock(ctxOf(t)) }))
		}
	}
	await.Until(t, "all processes listen", func() bool { return w.listeners("redisson_rwlock:{a}") == 3 })
	unlocked(t, wr)
	for _, got := range waiting {
		defer unlocked(t, got(t)) // all at the same time
	}
}

func TestReadWrite_ADowngradedWriterLetsReadersIn(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	wr := locked(t, rw.Write())
	r := locked(t, rw.Read(), WithOwner(wr.Owner()))
	other := w.locker(WithPollInterval(time.Hour)).ReadWrite("a")
	got := beside(func() (*Hold, error) { return other.Read().Lock(ctxOf(t)) })
	await.Until(t, "the reader listens", func() bool { return w.listeners("redisson_rwlock:{a}") == 1 })
	unlocked(t, wr)
	second := got(t)
	refused(t, other.Write())
	unlocked(t, r)
	refused(t, other.Write())
	unlocked(t, second)
	w.empty()
}

func TestReadWrite_AReaderCannotBecomeTheWriter(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	r := locked(t, rw.Read())
	_, err := rw.Write().Lock(ctxOf(t), WithOwner(r.Owner()))
	wantErr(t, err, ErrNotReentrant)
	unlocked(t, r)
}

func TestReadWrite_LeasesAreNotAdded(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	wr := locked(t, rw.Write())
	var more []*Hold
	for range 5 {
		h, err := wr.Reenter(ctxOf(t))
		if err != nil {
			t.Fatal(err)
		}
		more = append(more, h)
	}
	if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl > DefaultLease {
		t.Errorf("TTL = %v after six entries, want at most %v", ttl, DefaultLease)
	}
	for _, h := range append(more, wr) {
		unlocked(t, h)
	}
	w.empty()
}

func TestReadWrite_TheHashLastsAsLongAsTheLongestReader(t *testing.T) {
	w := newTestServer(t)
	rw := w.locker().ReadWrite("a")
	long, short, third := locked(t, rw.Read(), WithLease(time.Hour)), locked(t, rw.Read(), WithLease(time.Minute)), locked(t, rw.Read())
	for _, step := range []struct {
		hold     *Hold
		min, max time.Duration
	}{{third, 59 * time.Minute, time.Hour}, {long, 59 * time.Second, time.Minute}} {
		unlocked(t, step.hold)
		if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl < step.min || ttl > step.max {
			t.Errorf("TTL = %v, want %v to %v", ttl, step.min, step.max)
		}
	}
	unlocked(t, short)

	wr := locked(t, rw.Write(), WithLease(time.Hour))
	r := locked(t, rw.Read(), WithOwner(wr.Owner()), WithLease(time.Minute))
	unlocked(t, wr)
	if ttl := w.eye.PTTL(ctxOf(t), "a").Val(); ttl > time.Minute {
		t.Errorf("TTL = %v after the writer left, want the reader's 1m", ttl)
	}
	unlocked(t, r)
	w.empty()
}

func TestReadWrite_ADeadReaderHoldsTheWriterForItsLeaseOnly(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	dead := locked(t, l.ReadWrite("a").Read(), WithLease(100*time.Millisecond))
	alive := locked(t, l.ReadWrite("a").Read())
	ended(t, dead)
	unlocked(t, alive)
	unlocked(t, locked(t, w.locker(WithPollInterval(time.Hour)).ReadWrite("a").Write()))
	w.empty()
}

func TestReadWrite_RenewsTheHoldsBesideTheHash(t *testing.T) {
	w := newTestServer(t)
	l := w.locker(WithWatchdog(renewedLease))
	one := locked(t, l.ReadWrite("a").Read())
	two, err := one.Reenter(ctxOf(t))
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(renewedLease)
	await.Until(t, "the lease would be over", func() bool { return time.Now().After(end) })
	if n := w.eye.Exists(ctxOf(t), "a", "{a}:"+one.Owner().String()+":rwlock_timeout:1", "{a}:"+one.Owner().String()+":rwlock_timeout:2").Val(); n != 3 {
		t.Errorf("%d of 3 keys are left", n)
	}
	unlocked(t, one)
	unlocked(t, two)
	w.empty()
}

func TestReadWrite_CancelledReadersLeaveNothing(t *testing.T) {
	w := newTestServer(t)
	wr := locked(t, w.locker().ReadWrite("a").Write())
	ctx, cancel := context.WithCancel(t.Context())
	l := w.locker()
	failed := started(func() error { _, err := l.ReadWrite("a").Read().Lock(ctx); return err })
	await.Until(t, "the reader listens", func() bool { return w.listeners("redisson_rwlock:{a}") == 1 })
	cancel()
	wantErr(t, <-failed, context.Canceled)
	w.silent("redisson_rwlock:{a}")
	unlocked(t, wr)
	w.empty()
}
