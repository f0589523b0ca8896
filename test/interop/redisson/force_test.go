//go:build java

package redisson

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
)

// What Java takes away by force is lost here, and goes to whoever waits.
func TestForce_TakesAwayFromEitherSide(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker(lock.WithWatchdog(time.Second)).Reentrant("orders")
	hold := held(t, ours)
	next := beside(t, w.locker().Reentrant("orders"))
	w.listens(1, "redisson_lock__channel:{orders}")
	j.do("true", "ann", "reentrant.force", "orders")
	await.Until(t, "the hold has ended", func() bool { return hold.Context().Err() != nil })
	if err := context.Cause(hold.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the hold ended with %v, want ErrLost", err)
	}
	unlocked(t, next())
	j.do("false", "ann", "reentrant.force", "orders")
	for _, kind := range []string{"reentrant", "fair", "write"} { // and we take it from Java
		name := "by-us-" + kind
		lk := map[string]*lock.Lock{
			"reentrant": w.locker().Reentrant(name), "fair": w.locker().Fair(name), "write": w.locker().ReadWrite(name).Write(),
		}[kind]
		j.do("locked", "ann", kind+".lock", name)
		waits := j.begin("bob", kind+".lock", name)
		await.Until(t, "bob listens", func() bool {
			return len(w.eye.PubSubChannels(t.Context(), "*{"+name+"}*").Val()) == 1
		})
		if was, err := lk.ForceUnlock(brief(t)); err != nil || !was {
			t.Fatalf("ForceUnlock = %v, %v", was, err)
		}
		waits.is("locked")
		j.do("unlocked", "bob", kind+".unlock", name)
	}
}

// Who holds a lock here, and would not renew it for twenty minutes, notices that Java has
// taken it away.
func TestForce_IsNoticedBeforeARenewal(t *testing.T) {
	for _, kind := range []string{"reentrant", "read", "write"} {
		w := newTestServer(t)
		j := newJava(t, w.server.Addr)
		l := w.locker(lock.WithWatchdog(time.Hour))
		lk := map[string]*lock.Lock{"reentrant": l.Reentrant("orders"), "read": l.ReadWrite("orders").Read(), "write": l.ReadWrite("orders").Write()}[kind]
		hold := held(t, lk)
		w.listens(1, "redisson_")
		j.do("true", "ann", kind+".force", "orders")
		await.Until(t, kind+": the holder notices", func() bool { return hold.Context().Err() != nil })
		if err := context.Cause(hold.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("%s: the hold ended with %v, want ErrLost", kind, err)
		}
	}
}
