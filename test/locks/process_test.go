package locks

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/lock"
)

func TestKill9_TheLockIsFreeWithinItsLease(t *testing.T) {
	s, rdb := server(t)
	const lease = 3 * time.Second
	c := start(t, "hold", s.Addr, lease.String())
	owner := strings.TrimPrefix(c.says(), "holds ")
	l := process(t, s.Addr, lock.WithPollInterval(time.Hour))
	// It lives, for more than a lease.
	for end := time.Now().Add(lease + lease/4); time.Now().Before(end); {
		if ttl := rdb.PTTL(minute(t), "a").Val(); ttl <= 0 {
			t.Fatalf("TTL %v although the holder lives", ttl)
		}
	}
	c.signal(syscall.SIGKILL)
	killed := time.Now()
	ttl := rdb.PTTL(minute(t), "a").Val()
	h := held(t, l.Reentrant("a")) // nothing is published: the waiter knows the TTL
	if took := time.Since(killed); took < ttl-time.Millisecond {
		t.Errorf("free %v after the kill, sooner than the lease of which %v were left", took, ttl)
	}
	if h.Owner().String() == owner {
		t.Error("the dead process is still the owner")
	}
	released(t, h)
}

func TestStop_TheContextEndsBeforeAnyMoreWork(t *testing.T) {
	s, rdb := server(t)
	c := start(t, "hold", s.Addr, "300ms")
	c.says()
	c.signal(syscall.SIGSTOP)
	h := held(t, process(t, s.Addr).Reentrant("a"))
	next := time.Now()
	c.signal(syscall.SIGCONT)
	if got := c.says(); got != "ended "+lock.ErrLost.Error() {
		t.Errorf("the child says %q, want that its context ended with %v", got, lock.ErrLost)
	}
	nano, err := strconv.ParseInt(strings.TrimPrefix(c.says(), "worked "), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if late := time.Unix(0, nano).Sub(next); late > 0 {
		t.Errorf("the child began to work %v after the lock was another's", late)
	}
	if got := c.says(); got != "unlock "+lock.ErrLost.Error() {
		t.Errorf("the child says %q, want that unlocking is %v", got, lock.ErrLost)
	}
	if m := rdb.HGetAll(minute(t), "a").Val(); len(m) != 1 || m[h.Owner().String()] != "1" {
		t.Errorf("hash = %v, want the next owner's one hold", m)
	}
	released(t, h)
}
