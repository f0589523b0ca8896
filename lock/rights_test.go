package lock

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A user with exactly the rights of the README can use every kind of lock, and none of
// another name.
func TestRights_AreThoseOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := w.eye.Do(ctxOf(t), args...).Err(); err != nil {
		t.Fatal(err)
	}
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
	_, err = s.TrySetPermits(ctxOf(t), 1)
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
