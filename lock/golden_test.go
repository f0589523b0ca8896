package lock

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// The files of testdata/redisson are what the real Redisson left in Redis and
// said on its channels; test/interop/redisson has written them. Here we do the
// same and must leave and say the same, but for what is ours alone: its names
// begin with weir_.

// A recording is our doings on a server of its own, told like Redisson's.
type recording struct {
	*testServer
	*redistest.Transcript
}

func newRecording(t *testing.T) *recording {
	w := newTestServer(t)
	return &recording{w, redistest.NewTranscript(t, w.eye)}
}

// keys writes down the keys that Redisson would have.
func (r *recording) keys(step string) {
	r.t.Helper()
	r.Keys(step, "weir_", "{orders}:weir_", "a{b}c:weir_")
}

// calls names the owners of holds A, B, …
func (r *recording) calls(holds ...*Hold) {
	for i, h := range holds {
		r.Call(h.Owner().String(), string(rune('A'+i)))
	}
}

// leaves unlocks h and writes down what it tells.
func (r *recording) leaves(step string, h *Hold) {
	r.t.Helper()
	unlocked(r.t, h)
	r.Published(step)
}

func (r *recording) end(name string) {
	r.t.Helper()
	r.Same("testdata/redisson/" + name + ".txt")
}

func again(t *testing.T, h *Hold) *Hold {
	t.Helper()
	next, err := h.Reenter(ctxOf(t))
	if err != nil {
		t.Fatalf("Reenter: %v", err)
	}
	return next
}

func TestGolden_Reentrant(t *testing.T) {
	s := newRecording(t)
	l := s.locker()
	h := locked(t, l.Reentrant("orders"))
	s.calls(h)
	s.keys("held")
	second := again(t, h)
	s.keys("entered twice")
	unlocked(t, second)
	s.keys("left once")
	s.leaves("told", h)
	s.keys("left")
	h = locked(t, l.Reentrant("my{tag}orders"), WithOwner(h.Owner()))
	s.keys("held with a tag")
	s.leaves("told with a tag", h)
	s.end("reentrant")
}

// Ours also say that they live, and end with the last who waits: Redisson's
// queue stays for ever when its waiters die.
func TestGolden_Fair(t *testing.T) {
	s := newRecording(t)
	one, two := s.locker(), s.locker(WithPollInterval(4*time.Second))
	h := locked(t, one.Fair("orders"))
	s.calls(h)
	s.Call(two.id+":1", "B")
	s.Call(two.id+":2", "C")
	s.keys("held")
	length := func() int64 { return s.eye.LLen(ctxOf(t), "redisson_lock_queue:{orders}").Val() }
	second := beside(func() (*Hold, error) { return two.Fair("orders").Lock(ctxOf(t)) })
	await.Until(t, "one waits", func() bool { return length() == 1 })
	third := beside(func() (*Hold, error) { return two.Fair("orders").Lock(ctxOf(t)) })
	await.Until(t, "two wait", func() bool { return length() == 2 })
	for _, key := range []string{"redisson_lock_queue:{orders}", "redisson_lock_timeout:{orders}", "weir_lock_alive:{orders}"} {
		if ttl := s.eye.PTTL(ctxOf(t), key).Val(); ttl <= 0 {
			t.Errorf("%s has %v to live, want an end", key, ttl)
		}
		s.Stays(key)
	}
	s.keys("two wait")
	s.leaves("told", h)
	h = second(t)
	s.keys("one waits")
	s.leaves("told the next", h)
	h = third(t)
	s.keys("nobody waits")
	unlocked(t, h)
	s.keys("left")
	s.empty() // of ours, too
	s.end("fair")
}

func TestGolden_Fenced(t *testing.T) {
	s := newRecording(t)
	s.eye.Set(ctxOf(t), "redisson_lock_token:{orders}", 41, 0)
	l := s.locker().Fenced("orders")
	h := locked(t, l)
	s.calls(h)
	s.Call(strconv.FormatInt(h.Token(), 10), "TOKEN")
	s.keys("held")
	s.leaves("told", h)
	s.keys("left")
	s.end("fenced")

	// Redisson counts by one; what it finds must be a number that can be raised.
	java := s.eye.Incr(ctxOf(t), "redisson_lock_token:{orders}").Val()
	if java != h.Token()+1 {
		t.Errorf("Java's token is %d after our %d, want one more", java, h.Token())
	}
	h = locked(t, l)
	if h.Token() <= java {
		t.Errorf("token %d after Java's %d", h.Token(), java)
	}
	unlocked(t, h)
	far := int64(1) << 52 // beyond any clock
	s.eye.Set(ctxOf(t), "redisson_lock_token:{orders}", far, 0)
	h = locked(t, l)
	if h.Token() != far+1 {
		t.Errorf("token %d after %d, want one more", h.Token(), far)
	}
	unlocked(t, h)
}

func TestGolden_ReadWrite(t *testing.T) {
	s := newRecording(t)
	one, two := s.locker(), s.locker()
	rw := one.ReadWrite("orders")
	r := locked(t, rw.Read())
	r2 := again(t, r)
	r3 := locked(t, two.ReadWrite("orders").Read())
	s.calls(r, r3)
	s.keys("two read")
	unlocked(t, r2)
	unlocked(t, r3)
	s.keys("one reads")
	s.leaves("told by the last reader", r)
	s.keys("nobody reads")
	a := WithOwner(r.Owner())
	wr := locked(t, rw.Write(), a)
	s.keys("one writes")
	wr2 := again(t, wr)
	s.keys("entered twice")
	unlocked(t, wr2)
	r = locked(t, rw.Read(), a)
	s.keys("one writes and reads")
	unlocked(t, r)
	s.leaves("told by the writer", wr)
	s.Pass("0") // for a waiter of Redisson's that "1" has missed
	s.keys("left")
	r = locked(t, one.ReadWrite("x{tag}").Read(), a)
	s.keys("read with a tag")
	s.leaves("told with a tag", r)
	s.end("readwrite")
}

// Unlike Redisson, the writer tells of it: readers may come in now.
func TestGolden_Downgrade(t *testing.T) {
	s := newRecording(t)
	rw := s.locker().ReadWrite("orders")
	wr := locked(t, rw.Write())
	s.calls(wr)
	r := locked(t, rw.Read(), WithOwner(wr.Owner()))
	unlocked(t, wr)
	s.keys("goes on as a reader")
	unlocked(t, r)
	s.keys("left")
	s.end("downgrade")
}

func TestGolden_Semaphore(t *testing.T) {
	s := newRecording(t)
	sem := s.locker().Semaphore("orders")
	for _, want := range []bool{true, false} {
		if set, err := sem.TrySetPermits(ctxOf(t), 5); err != nil || set != want {
			t.Fatalf("TrySetPermits = %v, %v", set, err)
		}
	}
	s.Published("told of the permits")
	s.keys("set")
	wantErr(t, sem.Acquire(ctxOf(t), 3), nil)
	s.keys("taken")
	wantErr(t, sem.Release(ctxOf(t), 2), nil)
	s.Published("told of a release")
	s.keys("given back")
	s.end("semaphore")
}

func TestGolden_Permits(t *testing.T) {
	s := newRecording(t)
	p := s.locker().ExpirableSemaphore("orders")
	if _, err := p.TrySetPermits(ctxOf(t), 2); err != nil {
		t.Fatal(err)
	}
	s.Published("told of the permits")
	s.keys("set")
	h := locked(t, p)
	if id := h.Owner().String(); len(id) != 32 {
		t.Errorf("permit %q, want 32 hexadecimal digits", id)
	}
	s.Call("hex:"+h.Owner().String(), "PERMIT")
	s.keys("taken")
	s.leaves("told of a release", h)
	s.keys("given back")
	s.end("permits")
}

func TestGolden_Latch(t *testing.T) {
	s := newRecording(t)
	l := s.locker()
	set := func(name string, n int64) {
		t.Helper()
		if set, err := l.Latch(name).TrySetCount(ctxOf(t), n); err != nil || !set {
			t.Fatalf("TrySetCount = %v, %v", set, err)
		}
	}
	down := func() {
		t.Helper()
		wantErr(t, l.Latch("orders").CountDown(ctxOf(t)), nil)
	}
	set("orders", 2)
	s.Published("told of the count")
	s.keys("set")
	down()
	s.keys("counted once")
	down()
	s.Published("told of zero")
	s.keys("open")
	down() // nothing is left to count, or to tell
	set("a{b}c", 1)
	s.Published("told with a tag")
	s.end("latch")
}

func TestGolden_Group(t *testing.T) {
	s := newRecording(t)
	h := locked(t, s.locker().Group("orders", "one", "two"))
	s.calls(h)
	s.keys("held")
	second := again(t, h)
	s.keys("entered twice")
	unlocked(t, second)
	s.keys("left once")
	s.leaves("told", h)
	s.keys("left")
	long := s.locker().Group("orders", strings.Repeat("0123456789", 9), "grün")
	locked(t, long, WithOwner(h.Owner()))
	s.keys("held with long values")
	if was, err := long.ForceUnlock(ctxOf(t)); err != nil || !was {
		t.Fatalf("ForceUnlock = %v, %v", was, err)
	}
	s.Published("told by force")
	s.keys("taken away")
	s.end("group")
}

// Simple is ours alone.
func TestGolden_Simple(t *testing.T) {
	s := newRecording(t)
	h := locked(t, s.locker().Simple("orders"))
	s.calls(h)
	s.keys("held")
	s.leaves("told", h)
	s.keys("left")
	want := "-- held --\norders string A ends\n-- told --\nweir_simple:{orders} 0\n-- left --\n"
	if got := s.Text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// A Java service that holds, renews, waits for and gives back a lock is played
// by the commands that it sends.
func TestGolden_AJavaHolderIsRespected(t *testing.T) {
	w := newTestServer(t)
	const java = "8b0f2a6c-6b1d-4e0e-9c1a-0d9d6f5b7c11:57"
	w.eye.HSet(ctxOf(t), "orders", java, 2)
	w.eye.PExpire(ctxOf(t), "orders", 30*time.Second)
	lk := w.locker(WithPollInterval(time.Hour)).Reentrant("orders")
	refused(t, lk)
	got := beside(func() (*Hold, error) { return lk.Lock(ctxOf(t)) })
	await.Until(t, "the waiter listens", func() bool { return w.listeners("redisson_lock__channel:{orders}") == 1 })
	if got := w.eye.HGet(ctxOf(t), "orders", java).Val(); got != "2" {
		t.Errorf("Java's count is %q, want 2", got)
	}
	w.eye.Del(ctxOf(t), "orders")
	w.eye.Publish(ctxOf(t), "redisson_lock__channel:{orders}", "0")
	unlocked(t, got(t))
}
