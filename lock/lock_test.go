package lock

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // of the client: servers die here on purpose
	os.Exit(m.Run())
}

// leakFree fails the test if goroutines are left when all its other cleanups
// have run. Call it first.
func leakFree(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		// The client's own dialler sleeps on for a second after its pool is closed.
		dialler := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
		// A loaded machine may take long to end what was told to end.
		var err error
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
			if err = goleak.Find(before, dialler); err == nil {
				return
			}
		}
		t.Error(err)
	})
}

// A testServer is a Redis of its own and a client that looks into it.
type testServer struct {
	t      *testing.T
	server *redistest.Server
	eye    *redis.Client
}

func newTestServer(t *testing.T, args ...string) *testServer {
	t.Helper()
	leakFree(t)
	return newServer(t, args...)
}

// newServer is a testServer that leaves looking for leaks to others.
func newServer(t *testing.T, args ...string) *testServer {
	t.Helper()
	w := &testServer{t: t, server: redistest.Start(t, args...)}
	w.eye = w.dial(w.server.Addr)
	return w
}

// options are those of a client that keeps its deadlines.
func options(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

func (t *testServer) dial(addr string) *redis.Client {
	t.t.Helper()
	rdb := redis.NewClient(options(addr))
	t.t.Cleanup(func() { rdb.Close() })
	return rdb
}

// locker makes another process of the world: its own client and Locker.
func (t *testServer) locker(settings ...LockerOption) *Locker {
	t.t.Helper()
	return t.lockerAt(t.server.Addr, settings...)
}

func (t *testServer) lockerAt(addr string, settings ...LockerOption) *Locker {
	t.t.Helper()
	l := New(t.dial(addr), settings...)
	t.t.Cleanup(l.Close)
	return l
}

// hash is what stands under the lock's key.
func (t *testServer) hash(name string) map[string]string {
	t.t.Helper()
	m, err := t.eye.HGetAll(ctxOf(t.t), name).Result()
	if err != nil {
		t.t.Fatal(err)
	}
	return m
}

// empty fails unless Redis has no key at all.
func (t *testServer) empty() {
	t.t.Helper()
	await.Until(t.t, "no key is left", func() bool {
		keys, err := t.eye.Keys(ctxOf(t.t), "*").Result()
		return err == nil && len(keys) == 0
	})
}

// silent fails unless nobody is subscribed to channel, soon.
func (t *testServer) silent(channel string) {
	t.t.Helper()
	await.Until(t.t, "nobody listens to "+channel, func() bool { return t.listeners(channel) == 0 })
}

func (t *testServer) listeners(channel string) int64 {
	t.t.Helper()
	n, err := t.eye.PubSubNumSub(ctxOf(t.t), channel).Result()
	if err != nil {
		t.t.Fatal(err)
	}
	return n[channel]
}

// renewedLease is a lease that is renewed in time on a busy machine too: two of its
// three thirds may be late.
const renewedLease = 2 * time.Second

// ctxOf ends with the test, or after a minute.
func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// within is a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func locked(t *testing.T, l Lockable, options ...LockOption) *Hold {
	t.Helper()
	h, err := l.Lock(ctxOf(t), options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

func refused(t *testing.T, l Lockable, options ...LockOption) {
	t.Helper()
	if h, err := l.TryLock(ctxOf(t), options...); !errors.Is(err, ErrNotAcquired) {
		t.Fatalf("TryLock = %v, %v; want ErrNotAcquired", h, err)
	}
}

func unlocked(t *testing.T, h *Hold) {
	t.Helper()
	if err := h.Unlock(ctxOf(t)); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// ended waits until h's context has ended.
func ended(t *testing.T, h *Hold) {
	t.Helper()
	await.Until(t, "the hold has ended", func() bool { return h.Context().Err() != nil })
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error = %v, want %v", err, want)
	}
}

// calls is how many scripts the server has run.
func (t *testServer) calls() int {
	t.t.Helper()
	return redistest.Scripts(t.t, t.eye).Calls
}
