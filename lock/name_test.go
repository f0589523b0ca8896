package lock

import (
	"errors"
	"testing"
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
