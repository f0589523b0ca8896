package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/filetest"
)

func TestNames(t *testing.T) {
	w := newTestServer(t)
	l := w.locker()
	for _, name := range []string{"", "a{b", "a}b{", "{}x", "a}b", "}{"} {
		_, err := l.Reentrant(name).Lock(ctxOf(t))
		if !errors.Is(err, ErrInvalidName) {
			t.Errorf("Lock of %q: %v, want ErrInvalidName", name, err)
		}
	}
	for _, name := range []string{"a", "a b", "{a}", "x{a}y", "a:b", "x}{a}"} {
		if h, err := l.Reentrant(name).TryLock(ctxOf(t)); err != nil {
			t.Errorf("Lock of %q: %v", name, err)
		} else {
			unlocked(t, h)
		}
	}
	_, err := l.Reentrant("a").Lock(ctxOf(t), WithLease(MinLease-1))
	wantErr(t, err, ErrInvalidLease)
}

// What is nil is an error, and no panic; so is a lease that nobody can mean.
func TestArguments_NilAndOutOfRange(t *testing.T) {
	l := newTestServer(t).locker()
	var noContext context.Context
	lock := func(lk *Lock, ctx context.Context, options ...LockOption) error {
		_, err := lk.TryLock(ctx, options...)
		_, again := lk.Lock(ctx, options...)
		if (err == nil) != (again == nil) {
			t.Errorf("TryLock: %v; Lock: %v", err, again)
		}
		return err
	}
	free, held := l.Reentrant("free"), (*Hold)(nil)
	_, reentered := held.Reenter(ctxOf(t))
	_, forced := (*Lock)(nil).ForceUnlock(ctxOf(t))
	for _, c := range []struct {
		topic     string
		err, want error
	}{
		{"no lock", lock(nil, ctxOf(t)), ErrInvalidArgument},
		{"Multi of nil", lock(Multi(nil), ctxOf(t)), ErrInvalidArgument},
		{"Multi with nil", lock(Multi(free, nil), ctxOf(t)), ErrInvalidArgument},
		{"Redlock of nil", lock(Redlock(nil), ctxOf(t)), ErrInvalidArgument},
		{"no context", lock(free, noContext), ErrInvalidArgument},
		{"no option", lock(free, ctxOf(t), nil), ErrInvalidArgument},
		{"force of nil", forced, ErrInvalidArgument},
		{"Do with nil", Do(ctxOf(t), nil, func(context.Context) error { return nil }), ErrInvalidArgument},
		{"Do with a nil lock", Do(ctxOf(t), (*Lock)(nil), func(context.Context) error { return nil }), ErrInvalidArgument},
		{"Do without work", Do(ctxOf(t), free, nil), ErrInvalidArgument},
		{"Lead with nil", Lead(ctxOf(t), nil, func(context.Context) {}), ErrInvalidArgument},
		{"Lead with a nil lock", Lead(ctxOf(t), (*Lock)(nil), func(context.Context) {}), ErrInvalidArgument},
		{"lease of 367 days", lock(free, ctxOf(t), WithLease(367*24*time.Hour)), ErrInvalidLease},
		{"lease of 2^62 ns", lock(free, ctxOf(t), WithLease(1<<62)), ErrInvalidLease},
		{"no hold: Unlock", held.Unlock(ctxOf(t)), ErrNotHeld},
		{"no hold: Extend", held.Extend(ctxOf(t), time.Second), ErrNotHeld},
		{"no hold: Reenter", reentered, ErrNotHeld},
		{"no hold: Context", context.Cause(held.Context()), ErrNotHeld},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v; want %v", c.topic, c.err, c.want)
		}
	}
	if held.Token() != 0 || held.Owner() != (Owner{}) || !held.Deadline().IsZero() {
		t.Error("a hold that is nil has a token, an owner or a deadline")
	}
	h, err := free.TryLock(ctxOf(t), WithLease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, h.Extend(ctxOf(t), MaxLease+1), ErrInvalidLease)
	unlocked(t, h)
}

func TestNames_AllKeysShareTheSlotOfTheName(t *testing.T) {
	w := newTestServer(t, "--cluster-enabled", "yes")
	slot := func(key string) int64 {
		n, err := w.eye.ClusterKeySlot(ctxOf(t), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, name := range []string{"a", "a b", "{a}", "x{a}y", "x{a}{b}", "x}{a}", "{a}}", "{{a}", "a:b"} {
		if err := checkName(name); err != nil {
			t.Errorf("checkName(%q) = %v", name, err)
			continue
		}
		for _, key := range []string{prefixedKey("redisson_lock__channel", name), suffixedKey(name, "timeout"), prefixedKey("redisson_lock_queue", name) + ":u:1"} {
			if got, want := slot(key), slot(name); got != want {
				t.Errorf("%q is in slot %d, %q in %d", key, got, name, want)
			}
		}
	}
}

// A user with exactly the rights of the README can use every kind of lock, and none of
// another name.
func TestRights_AreThoseOfTheReadme(t *testing.T) {
	text := filetest.Read(t, "README.md")
	_, line, found := strings.Cut(string(text), "ACL SETUSER locks ")
	if !found {
		t.Fatal("the README sets no rights")
	}
	line, _, _ = strings.Cut(line, "\n")
	w := newTestServer(t)
	args := []any{"ACL", "SETUSER", "locks", "reset"}
	for right := range strings.FieldsSeq(line) {
		args = append(args, right)
	}
	wantErr(t, w.eye.Do(ctxOf(t), args...).Err(), nil)
	as := *options(w.server.Addr)
	as.Username, as.Password = "locks", "SECRET"
	rdb := redis.NewClient(&as)
	defer rdb.Close()
	l := New(rdb)
	defer l.Close()
	both := l.ReadWrite("orders:rw")
	for kind, lk := range map[string]Lockable{
		"reentrant": l.Reentrant("orders"), "fair": l.Fair("orders:fair"), "fenced": l.Fenced("orders:fenced"), "simple": l.Simple("orders:simple"),
		"read": both.Read(), "write": both.Write(), "group": l.Group("orders:group", "a", "b"),
		"multi": Multi(l.Reentrant("{orders}:1"), l.Fair("orders:2")),
	} {
		for range 2 {
			h, err := lk.Lock(ctxOf(t), WithLease(time.Minute))
			if err != nil {
				t.Errorf("%s: %v", kind, err)
				break
			}
			unlocked(t, h)
		}
	}
	s, e, latch := l.Semaphore("orders:semaphore"), l.ExpirableSemaphore("orders:permits"), l.Latch("orders:latch")
	_, err := s.TrySetPermits(ctxOf(t), 1)
	_, again := e.TrySetPermits(ctxOf(t), 1)
	_, counted := latch.TrySetCount(ctxOf(t), 1)
	for what, err := range map[string]error{
		"semaphore": err, "expirable semaphore": again, "latch": counted, "acquire": s.Acquire(ctxOf(t), 1), "release": s.Release(ctxOf(t), 1), "count down": latch.CountDown(ctxOf(t)),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := l.Reentrant("payments").TryLock(ctxOf(t)); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("a lock of another name: %v; want NOPERM", err)
	}
}
