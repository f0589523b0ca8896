//go:build java

package redisson

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/lock"
)

// A limiter that Java has filled costs Redis what a small one does, however many permits
// are out, and other limits are decided meanwhile as ever. Its cost is Redis's own CPU, so
// that a busy machine does not count.
func TestRate_AFullLimiterHoldsUpNobody(t *testing.T) {
	const many, few, asks = 20_000, 20, 400
	l := newLimited(t, 0)
	l.do("true", "ann", "rate.set", "small", few, time.Hour.Milliseconds(), 0)
	l.do("20", "ann", "rate.fill", "small", few)
	l.do("true", "ann", "rate.set", "full", many, time.Hour.Milliseconds(), 0)
	filled := make([]*reply, 4)
	for i := range filled { // each actor a part: none takes long
		filled[i] = l.begin([]string{"ann", "bob", "cid", "dan"}[i], "rate.fill", "full", many/len(filled))
	}
	for _, f := range filled {
		f.is("5000")
	}
	rdb, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{l.server.Addr}, Timeout: soon})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rdb.Close() })
	store := redisstore.New(rdb, redisstore.Options{Timeout: soon, CachedRefusals: -1})
	t.Cleanup(func() { store.Close() })
	other := limiter.Claim{Limit: &limiter.Limit{Name: "other", Rate: limiter.Rate{Count: 1000, Window: time.Hour}, Algorithm: limiter.GCRA}, Cost: 1}
	refused := func(name string) (used float64) {
		claim := limiter.Claim{Limit: &limiter.Limit{Name: name, Rate: limiter.Rate{Count: 1, Window: time.Hour}}, Cost: 1, RedissonName: name, RedissonFormat: form(t)}
		before := l.cpu()
		for range asks {
			var d limiter.Decision
			if err := store.Take(t.Context(), []limiter.Claim{claim}, &d); err != nil || d.Allowed || d.Wait <= 0 || d.Wait > time.Hour {
				t.Fatalf("%s: %+v, %v", name, d, err)
			}
			if err := store.Take(t.Context(), []limiter.Claim{other}, &d); err != nil || !d.Allowed {
				t.Fatalf("other, beside %s: %+v, %v", name, d, err)
			}
		}
		return l.cpu() - before
	}
	small, full := refused("small"), refused("full")
	t.Logf("%d refusals and as many grants of another limit: %.0f ms of Redis beside %d permits, %.0f ms beside %d", asks, 1000*small, few, 1000*full, many)
	if full > 4*small {
		t.Errorf("%d permits cost %.1f times what %d do", many, full/small, few)
	}
}

// cpu is what Redis has used, in seconds.
func (t *testServer) cpu() (seconds float64) {
	t.t.Helper()
	for line := range strings.Lines(t.eye.Info(t.t.Context(), "cpu").Val()) {
		name, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				t.t.Fatal(err)
			}
			seconds += n
		}
	}
	return seconds
}

// Above a thousand permits both sides count the same, to the last one.
func TestRate_BothCountThousands(t *testing.T) {
	l := newLimited(t, 0)
	l.do("true", "ann", "rate.set", "many", 3000, time.Hour.Milliseconds(), 0)
	r := l.limiter(t, "many")
	l.do("1400", "ann", "rate.fill", "many", 1400)
	for i := range 1500 {
		if o, err := r.Allow(brief(t), 1); err != nil || !o.Allowed {
			t.Fatalf("%d: %+v, %v", i, o, err)
		}
	}
	l.do("100", "ann", "rate.left", "many")
	if n, err := r.Available(brief(t)); err != nil || n != 100 {
		t.Fatalf("Available = %d, %v; want 100", n, err)
	}
	l.do("100", "ann", "rate.fill", "many", 120)
	if o, err := r.Allow(brief(t), 1); err != nil || o.Allowed {
		t.Fatalf("Allow = %+v, %v; want a refusal", o, err)
	}
	if err := r.Release(brief(t), 900); err != nil {
		t.Fatal(err)
	}
	l.do("900", "ann", "rate.fill", "many", 1000)
}

// What comes back after one interval comes back to both, however much it is.
func TestRate_ThousandsComeBack(t *testing.T) {
	l := newLimited(t, 0)
	l.do("true", "ann", "rate.set", "many", 2000, 3000, 0)
	r := l.limiter(t, "many")
	for round := range 2 {
		l.do("800", "ann", "rate.fill", "many", 800)
		o, err := r.Allow(brief(t), 1200)
		if err != nil || !o.Allowed {
			t.Fatalf("round %d: %+v, %v", round, o, err)
		}
		if err := r.Wait(brief(t), 2000); err != nil {
			t.Fatal(err)
		}
		l.do("false", "ann", "rate.take", "many", 1)
		if err := r.Release(brief(t), 2000); err != nil {
			t.Fatal(err)
		}
	}
}

// A proxy finds the limiter of each key under the name that Java gives it.
func TestRate_KeysNameJavasLimiters(t *testing.T) {
	l := newLimited(t, 0)
	addr := weir(t, l.store, `
keys: {phone: {from: "header:X-Phone", normalize: digits}}
routes:
  - match: {path: /plain}
    upstream: echo
    limits: [{key: phone, rate: 1/1h, redisson_name: "codes:{key}", redisson_version: `+version(t)+`}]
  - match: {path: /tagged}
    upstream: echo
    limits: [{key: phone, rate: 1/1h, redisson_name: "tagged:{{key}}", redisson_version: `+version(t)+`}]
`)
	for path, name := range map[string]string{"/plain": "codes:138", "/tagged": "tagged:{138}"} {
		l.do("true", "ann", "rate.set", name, 3, time.Hour.Milliseconds(), 0)
		l.do("true", "ann", "rate.take", name, 1)
		for i, want := range []int{200, 200, 429} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Phone", "+1 38")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s: request %d: %s, want %d", path, i, answer.Status, want)
			}
		}
		l.do("0", "ann", "rate.left", name)
		l.do("false", "ann", "rate.take", name, 1)
	}
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// waiting runs wait beside the test; the result waits for its end.
func waiting(t *testing.T, wait func(context.Context) error) func() {
	t.Helper()
	ctx, done := brief(t), make(chan error, 1)
	go func() { done <- wait(ctx) }()
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestSemaphore_CountsForBoth(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().Semaphore("seats")
	j.do("true", "ann", "semaphore.set", "seats", 3)
	if set, err := ours.TrySetPermits(brief(t), 9); err != nil || set {
		t.Fatalf("TrySetPermits = %v, %v; Java had set it", set, err)
	}
	if err := ours.Acquire(brief(t), 2); err != nil {
		t.Fatal(err)
	}
	j.do("1", "ann", "semaphore.left", "seats")
	j.do("true", "ann", "semaphore.try", "seats", 1)
	if err := ours.TryAcquire(brief(t), 1); !errors.Is(err, lock.ErrNotAcquired) {
		t.Fatalf("TryAcquire = %v, want ErrNotAcquired", err)
	}
	got := waiting(t, func(ctx context.Context) error { return ours.Acquire(ctx, 2) })
	w.listens(1, "redisson_sc:{seats}")
	j.do("given", "ann", "semaphore.give", "seats", 2)
	got()
	waits := j.begin("bob", "semaphore.take", "seats", 2)
	w.listens(1, "redisson_sc:{seats}")
	waits.waits()
	if err := ours.Release(brief(t), 2); err != nil {
		t.Fatal(err)
	}
	waits.is("taken")
	j.do("0", "ann", "semaphore.left", "seats")
}

func TestPermits_CountForBoth(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().ExpirableSemaphore("seats")
	if set, err := ours.TrySetPermits(brief(t), 2); err != nil || !set {
		t.Fatalf("TrySetPermits = %v, %v", set, err)
	}
	j.do("false", "ann", "permits.set", "seats", 5)
	hold := held(t, ours)
	id := j.begin("ann", "permits.take", "seats").wait()
	j.do("0", "ann", "permits.left", "seats")
	if n, err := ours.Available(brief(t)); err != nil || n != 0 {
		t.Fatalf("Available = %d, %v; want 0", n, err)
	}
	refused(t, ours)
	got := beside(t, ours)
	w.listens(1, "redisson_sc:{seats}")
	j.do("true", "ann", "permits.give", "seats", id)
	second := got()
	waits := j.begin("bob", "permits.take", "seats")
	w.listens(1, "redisson_sc:{seats}")
	waits.waits()
	unlocked(t, second)
	id = waits.wait()
	j.do("true", "bob", "permits.give", "seats", id)
	unlocked(t, hold)
	j.do("2", "ann", "permits.left", "seats")

	// Java's permit whose lease is over comes back, to us as well.
	j.begin("ann", "permits.lease", "seats", 300).wait()
	one := held(t, ours)
	unlocked(t, held(t, ours))
	unlocked(t, one)
}

func TestLatch_OpensForBoth(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	ours := w.locker().Latch("start")
	j.do("true", "ann", "latch.set", "start", 2)
	if n, err := ours.Count(brief(t)); err != nil || n != 2 {
		t.Fatalf("Count = %d, %v; want 2", n, err)
	}
	opened := waiting(t, ours.Await)
	w.listens(1, "redisson_countdownlatch__channel__{start}")
	if err := ours.CountDown(brief(t)); err != nil {
		t.Fatal(err)
	}
	j.do("1", "ann", "latch.count", "start")
	j.do("counted", "ann", "latch.down", "start")
	opened()

	if set, err := ours.TrySetCount(brief(t), 2); err != nil || !set {
		t.Fatalf("TrySetCount = %v, %v", set, err)
	}
	waits := j.begin("bob", "latch.await", "start")
	w.listens(1, "redisson_countdownlatch__channel__{start}")
	j.do("counted", "ann", "latch.down", "start")
	waits.waits()
	if err := ours.CountDown(brief(t)); err != nil {
		t.Fatal(err)
	}
	waits.is("open")
	j.do("0", "ann", "latch.count", "start")
}
