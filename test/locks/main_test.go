// Package locks tries package lock from outside, with whole processes: killed,
// stopped and continued, beside servers that fail over.
package locks

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // of the client: servers die here on purpose
	if role := os.Getenv("WEIR_LOCK_CHILD"); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

// client is one that keeps its deadlines and gives up a dead server quickly.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// eye is a client that ends with the test.
func eye(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := client(addr)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// process is a Locker with a client of its own, as another process has.
func process(t testing.TB, addr string, settings ...lock.LockerOption) *lock.Locker {
	t.Helper()
	l := lock.New(eye(t, addr), settings...)
	t.Cleanup(l.Close)
	return l
}

// minute ends with the test, or after a minute.
func minute(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func held(t testing.TB, l lock.Lockable, options ...lock.LockOption) *lock.Hold {
	t.Helper()
	h, err := l.Lock(minute(t), options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

// ended waits until h's context has ended.
func ended(t testing.TB, h *lock.Hold) {
	t.Helper()
	await.Until(t, "the hold has ended", func() bool { return h.Context().Err() != nil })
}

func released(t testing.TB, h *lock.Hold) {
	t.Helper()
	if err := h.Unlock(minute(t)); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func server(t testing.TB) (*redistest.Server, *redis.Client) {
	t.Helper()
	s := redistest.Start(t)
	return s, eye(t, s.Addr)
}
