package lock

import (
	"strconv"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

func TestGroup_OnlyCommonValuesExclude(t *testing.T) {
	w := newTestServer(t)
	one, two := w.locker(), w.locker()
	h := locked(t, one.Group("orders", "a", "b"))
	beside := locked(t, one.Group("orders", "c"))
	elsewhere := locked(t, two.Group("invoices", "a"))
	refused(t, two.Group("orders", "b", "d"))
	refused(t, one.Group("orders", "b"))
	free := locked(t, two.Group("orders", "d")) // the refusal took nothing
	unlocked(t, h)
	refused(t, two.Group("orders", "a", "c"))
	unlocked(t, beside)
	h = locked(t, two.Group("orders", "a", "c"))
	for _, h := range []*Hold{h, free, elsewhere} {
		unlocked(t, h)
	}
	w.empty()
}

func TestGroup_OrderAndRepetitionAreOfNoMatter(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h := locked(t, l.Group("orders", "b", "a", "b"))
	if n := len(w.hash("orders")); n != 6 {
		t.Errorf("%d fields, want three for each of two values", n)
	}
	second := locked(t, l.Group("orders", "a", "b"), WithOwner(h.Owner()))
	unlocked(t, h)
	refused(t, w.locker().Group("orders", "a"))
	unlocked(t, second)
	w.empty()
}

// A holder wakes those who wait for any of its values, in one process too.
func TestGroup_WakesAllWhoWaitForAPart(t *testing.T) {
	w := newTestServer(t)
	h := locked(t, w.locker().Group("orders", "a", "b", "c"))
	l := w.locker(WithPollInterval(time.Hour))
	first := beside(func() (*Hold, error) { return l.Group("orders", "a", "d").Lock(ctxOf(t)) })
	second := beside(func() (*Hold, error) { return l.Group("orders", "b", "e").Lock(ctxOf(t)) })
	third := beside(func() (*Hold, error) {
		return w.locker(WithPollInterval(time.Hour)).Group("orders", "c", "f").Lock(ctxOf(t))
	})
	await.Until(t, "both processes listen", func() bool { return w.listeners("redisson_lock__channel:{orders}") == 2 })
	await.Until(t, "all were refused twice", func() bool { return w.calls() >= 1+3*2 })
	unlocked(t, h)
	for _, h := range []*Hold{first(t), second(t), third(t)} { // all at the same time
		unlocked(t, h)
	}
	w.empty()
}

// What others left when they died keeps nobody out, and goes, although the group's
// key lives on.
func TestGroup_WhatTheDeadLeftIsTakenOver(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	kept := locked(t, l.Group("orders", "kept"))
	dead := fieldOf("a") + ":" + w.locker().id + ":57"
	w.eye.HSet(ctxOf(t), "orders", fieldOf("a"), dead[len(fieldOf("a"))+1:],
		dead+":expire_time", time.Now().Add(-time.Millisecond).UnixMilli(), dead+":lock_count", 2)
	wantFree(t, l.Group("orders", "a"))
	h := locked(t, w.locker(WithPollInterval(time.Hour)).Group("orders", "a"))
	if m := w.hash("orders"); len(m) != 6 || m[dead+":expire_time"]+m[dead+":lock_count"] != "" {
		t.Errorf("fields = %v, want three for each of two holders", m)
	}
	unlocked(t, h)
	unlocked(t, kept)
	w.empty()
}

// A waiter asks again when the lease of whoever keeps it out is over, not when the
// key is.
func TestGroup_WaitsForTheLeaseInTheWay(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	kept := locked(t, l.Group("orders", "kept"), WithLease(time.Hour))
	short := locked(t, l.Group("orders", "a"), WithLease(200*time.Millisecond))
	if left, err := l.Group("orders", "a", "b").RemainingLease(ctxOf(t)); err != nil || left > 200*time.Millisecond {
		t.Errorf("Remaining = %v, %v; want at most the short lease", left, err)
	}
	unlocked(t, locked(t, w.locker(WithPollInterval(time.Hour)).Group("orders", "a", "b")))
	wantErr(t, short.Unlock(ctxOf(t)), ErrLost)
	if left, err := l.Group("orders", "a", "kept").RemainingLease(ctxOf(t)); err != nil || left < 50*time.Minute {
		t.Errorf("Remaining = %v, %v; want the longest of both", left, err)
	}
	unlocked(t, kept)
	w.empty()
}

// An hour is not cut short by a hold of a minute beside it, nor by what leaves.
func TestGroup_TheKeyLastsAsLongAsTheLongest(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	long := locked(t, l.Group("orders", "a"), WithLease(time.Hour))
	short := locked(t, l.Group("orders", "b"), WithLease(time.Minute))
	if err := short.Extend(ctxOf(t), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	unlocked(t, short)
	unlocked(t, locked(t, l.Group("orders", "a"), WithOwner(long.Owner()), WithLease(time.Minute)))
	if left, err := l.Group("orders", "a").RemainingLease(ctxOf(t)); err != nil || left < 59*time.Minute {
		t.Errorf("Remaining = %v, %v; want the hour", left, err)
	}
	if ttl := w.eye.PTTL(ctxOf(t), "orders").Val(); ttl < 59*time.Minute {
		t.Errorf("the key lasts %v, want an hour", ttl)
	}
	unlocked(t, long)
	w.eye.HSet(ctxOf(t), "orders", "others", "1") // without end
	unlocked(t, locked(t, l.Group("orders", "a")))
	if ttl := w.eye.TTL(ctxOf(t), "orders").Val(); ttl != -1 {
		t.Errorf("the key of others lasts %v, want without end", ttl)
	}
}

// With one value the hold is lost, and the others are free at once.
func TestGroup_IsLostWithAnyValue(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	h := locked(t, l.Group("orders", "a", "b"))
	if was, err := w.locker().Group("orders", "b", "z").ForceUnlock(ctxOf(t)); err != nil || !was {
		t.Fatalf("ForceUnlock = %v, %v", was, err)
	}
	refused(t, w.locker().Group("orders", "a"))
	other := locked(t, w.locker().Group("orders", "b"))
	wantErr(t, h.Extend(ctxOf(t), time.Minute), ErrLost)
	wantErr(t, h.Unlock(ctxOf(t)), ErrLost)
	unlocked(t, locked(t, l.Group("orders", "a")))
	unlocked(t, other)
	w.empty()
}

func TestGroup_ManyValuesTakeOneCall(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	unlocked(t, locked(t, l.Group("orders", "a"))) // Redis knows the scripts now
	values := make([]string, 1000)
	for i := range values {
		values[i] = strconv.Itoa(i)
	}
	before := w.calls()
	h := locked(t, l.Group("orders", values...))
	if n := len(w.hash("orders")); n != 3000 {
		t.Errorf("%d fields, want 3000", n)
	}
	unlocked(t, h)
	if n := w.calls() - before; n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
	w.empty()
}

func TestGroup_WithoutValuesOrNameIsRefused(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for _, lk := range []*Lock{l.Group("orders"), l.Group("", "a"), l.Group("or{ders", "a")} {
		_, err := lk.Lock(ctxOf(t))
		wantErr(t, err, ErrInvalidName)
		_, err = lk.Locked(ctxOf(t))
		wantErr(t, err, ErrInvalidName)
	}
	unlocked(t, locked(t, l.Group("orders", ""))) // a value may be empty
	w.empty()
}
