//go:build java

package redisson

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/await"
)

const (
	rate     = 40
	interval = time.Second
	flooding = 4 * interval
)

// A grant lies somewhere between two moments, in ms: the clock that both sides
// go by has no finer ones.
type grant struct{ before, after int64 }

// A flood is a taker that asks all the time, and when it was granted.
type flood struct {
	who    string
	grants []grant
}

// floods lets several takers ask at the same time.
func floods(t *testing.T, takers map[string]func(context.Context) (bool, error)) []flood {
	t.Helper()
	var mu sync.Mutex
	var all []flood
	var done sync.WaitGroup
	for who, take := range takers {
		done.Go(func() {
			f := flood{who: who}
			for start := time.Now(); time.Since(start) < flooding; {
				before := time.Now().UnixMilli()
				granted, err := take(brief(t))
				if err != nil {
					t.Errorf("%s: %v", who, err)
					return
				}
				if granted {
					f.grants = append(f.grants, grant{before, time.Now().UnixMilli()})
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, f)
		})
	}
	done.Wait()
	return all
}

// parse reads what a flood of Java's has answered.
func parse(t *testing.T, answer string) flood {
	t.Helper()
	f := flood{who: "java"}
	for pair := range strings.SplitSeq(strings.Trim(answer, ","), ",") {
		before, after, ok := strings.Cut(pair, "-")
		if !ok {
			t.Fatalf("java's flood answered %q", answer)
		}
		f.grants = append(f.grants, grant{number(t, before), number(t, after)})
	}
	return f
}

// form is how the Redisson that is being tried keeps a limiter.
func form(t testing.TB) limiter.RedissonFormat {
	t.Helper()
	f, err := limiter.RedissonFormatOf(version(t))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// most is what one interval may hold: up to 3.13.2 a new window begins within it.
func most(t testing.TB) int {
	t.Helper()
	if form(t) == limiter.RedissonWindow {
		return 2 * rate
	}
	return rate
}

// bounded fails if there were certainly more grants than the rate within one
// interval, or far fewer in all than there should be. Everybody has one clock.
func bounded(t *testing.T, all ...flood) {
	t.Helper()
	var grants []grant
	for _, f := range all {
		grants = append(grants, f.grants...)
		t.Logf("%s was granted %d", f.who, len(f.grants))
	}
	for _, first := range grants {
		inside := 0
		for _, g := range grants {
			if g.before >= first.before && g.after-first.before < interval.Milliseconds() {
				inside++
			}
		}
		if inside > most(t) {
			t.Errorf("%d were granted within one interval, want at most %d", inside, most(t))
		}
	}
	if least := rate * int(flooding/interval) / 2; len(grants) < least {
		t.Errorf("%d were granted in all, want at least %d", len(grants), least)
	}
}

// A limited is one Java process, one store of ours and one rate limiter.
type limited struct {
	*testServer
	*java
	store *redisstore.Store
}

func newLimited(t *testing.T, scope int) *limited {
	t.Helper()
	w := newTestServer(t)
	l := &limited{testServer: w, java: newJava(t, w.server.Addr)}
	l.store = redisstore.New(w.client(w.server.Addr), redisstore.Options{Timeout: soon})
	t.Cleanup(func() { l.store.Close() })
	l.do("true", "ann", "rate.set", "codes", rate, interval.Milliseconds(), scope)
	return l
}

// handle takes by the Go counterpart of an RRateLimiter.
func (l *limited) handle(t *testing.T) func(context.Context) (bool, error) {
	t.Helper()
	r := l.limiter(t, "codes")
	return func(ctx context.Context) (bool, error) {
		o, err := r.Allow(ctx, 1)
		return o.Allowed, err
	}
}

// limiter is the Go counterpart of an RRateLimiter.
func (l *limited) limiter(t *testing.T, name string) *redisstore.RateLimiter {
	t.Helper()
	r, err := l.store.RateLimiter(name, uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	return r.WithFormat(form(t))
}

// claim takes the way a proxy does.
func (l *limited) claim(ctx context.Context) (bool, error) {
	f := form(l.testServer.t)
	var d limiter.Decision
	claims := []limiter.Claim{{
		Limit: &limiter.Limit{Name: "sms.codes", Rate: limiter.Rate{Count: 1000 * rate, Window: time.Hour}},
		Cost:  1, RedissonName: "codes", RedissonFormat: f,
	}}
	err := l.store.Take(ctx, claims, &d)
	return d.Allowed, err
}

// A Java program, a Go program and a proxy share one limiter, whose rate Java has
// set: together they are never granted more.
func TestRate_TogetherNeverAboveTheRate(t *testing.T) {
	l := newLimited(t, 0)
	java := l.begin("ann", "rate.flood", "codes", flooding.Milliseconds())
	ours := floods(t, map[string]func(context.Context) (bool, error){"handle": l.handle(t), "claim": l.claim})
	bounded(t, append(ours, parse(t, java.wait()))...)
}

// A limiter that counts each client by itself grants each the rate.
func TestRate_PerClientEachItsOwn(t *testing.T) {
	if form(t) == limiter.RedissonWindow {
		return // it counts all together, whatever its type
	}
	l := newLimited(t, 1)
	java := l.begin("ann", "rate.flood", "codes", flooding.Milliseconds())
	ours := floods(t, map[string]func(context.Context) (bool, error){"one": l.handle(t), "two": l.handle(t)})
	for _, f := range append(ours, parse(t, java.wait())) {
		bounded(t, f)
	}
}

// What one side took, the other misses; what Go set, Java obeys.
func TestRate_BothCountTheSamePermits(t *testing.T) {
	l := newLimited(t, 0)
	r := l.limiter(t, "hours")
	set, err := r.TrySetRate(brief(t), redisstore.RateConfig{Rate: limiter.Rate{Count: 10, Window: time.Hour}})
	if err != nil || !set {
		t.Fatalf("TrySetRate = %v, %v", set, err)
	}
	l.do("false", "ann", "rate.set", "hours", 99, 1000, 0)
	l.do("true", "ann", "rate.take", "hours", 4)
	if o, err := r.Allow(brief(t), 5); err != nil || !o.Allowed || o.Remaining != 1 {
		t.Fatalf("Allow(5) = %+v, %v; want it granted and 1 left of 10", o, err)
	}
	l.do("1", "ann", "rate.left", "hours")
	l.do("false", "ann", "rate.take", "hours", 2)
	if o, err := r.Allow(brief(t), 2); err != nil || o.Allowed || o.Wait < 50*time.Minute {
		t.Fatalf("Allow(2) = %+v, %v; want a refusal for almost an hour", o, err)
	}
	if err := r.Release(brief(t), 3); err != nil {
		t.Fatal(err)
	}
	l.do("4", "ann", "rate.left", "hours")
	if !before(t, 3, 52) { // Java's release raises the value, which both believe
		l.do("null", "ann", "rate.give", "hours", 2)
		if n, err := r.Available(brief(t)); err != nil || n != 6 {
			t.Fatalf("Available = %d, %v; want 6", n, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Wait(ctx, 9); !errors.Is(err, redisstore.ErrWaitTooLong) {
		t.Errorf("Wait(9) = %v, want ErrWaitTooLong at once", err)
	}
}

// A Java program and a Weir whose file names its limiter: never more in all.
func TestRate_AProxySharesJavasLimiter(t *testing.T) {
	l := newLimited(t, 0)
	addr := weir(t, l.store, `
routes:
  - match: {path: /codes}
    upstream: echo
    limits: [{key: global, rate: 1/1h, redisson_name: codes, redisson_version: `+version(t)+`}]
`)
	client := &http.Client{Timeout: soon}
	java := l.begin("ann", "rate.flood", "codes", flooding.Milliseconds())
	ours := floods(t, map[string]func(context.Context) (bool, error){"proxy": func(ctx context.Context) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/codes", http.NoBody)
		if err != nil {
			return false, err
		}
		answer, err := client.Do(r)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
			return false, errors.New(answer.Status)
		}
		return answer.StatusCode == http.StatusOK, nil
	}})
	bounded(t, append(ours, parse(t, java.wait()))...)
}

// weir starts a proxy on a store and returns its address.
func weir(t *testing.T, store limiter.AdminStore, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(t.Context(), proxy.Options{
		Config: c, Log: zerolog.Nop(), Registry: prometheus.NewRegistry(), Store: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := frontend.NewServer(p, c.Listen, zerolog.Nop())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { s.Serve(listener) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Drain(ctx)
		served.Wait()
		p.Close()
	})
	return listener.Addr().String()
}

// Entries are written as those that are there, whatever version was named, so that Java
// reads them; a limiter that has entries of two forms is refused, and nothing is written.
func TestRate_EntriesAreWrittenAsJavasAre(t *testing.T) {
	if form(t) == limiter.RedissonWindow {
		return // it has no entries
	}
	l := newLimited(t, 0)
	l.do("true", "ann", "rate.set", "found", 10, time.Hour.Milliseconds(), 0)
	l.do("true", "ann", "rate.take", "found", 2)
	r := l.limiter(t, "found").WithFormat(limiter.RedissonByte)
	if o, err := r.Allow(brief(t), 3); err != nil || !o.Allowed || o.Remaining != 5 {
		t.Fatalf("Allow(3) = %+v, %v; want it granted and 5 left of 10", o, err)
	}
	l.do("5", "ann", "rate.left", "found")
	l.do("true", "ann", "rate.take", "found", 4)
	l.do("false", "ann", "rate.take", "found", 2)
	if o, err := r.Allow(brief(t), 2); err != nil || o.Allowed || o.Wait < 50*time.Minute {
		t.Fatalf("Allow(2) = %+v, %v; want a refusal for almost an hour", o, err)
	}
	other := "\x08an-id-of\x01\x00\x00\x00" // of 3.17 and later
	if form(t) == limiter.RedissonByte {
		other = "\x01\x02\x03\x04\x01\x00\x00\x00" // up to 3.16.3
	}
	if err := l.eye.ZAdd(brief(t), "{found}:permits", redis.Z{Score: float64(time.Now().UnixMilli()), Member: other}).Err(); err != nil {
		t.Fatal(err)
	}
	before := l.eye.Dump(brief(t), "{found}:permits").Val()
	if o, err := r.Available(brief(t)); !errors.Is(err, redisstore.ErrRedisson) {
		t.Errorf("Available beside entries of two forms = %v, %v; want ErrRedisson", o, err)
	}
	if o, err := r.Allow(brief(t), 1); !errors.Is(err, redisstore.ErrRedisson) {
		t.Errorf("Allow beside entries of two forms = %+v, %v; want ErrRedisson", o, err)
	}
	if l.eye.Dump(brief(t), "{found}:permits").Val() != before {
		t.Error("the entries have changed")
	}
}

// What a request wrote of a limiter that Java has not set ends with its permits, and then
// Java sets it as it likes.
func TestRate_WhatARequestSetEndsWithItsPermits(t *testing.T) {
	l := newLimited(t, 0)
	var d limiter.Decision
	claims := []limiter.Claim{{
		Limit: &limiter.Limit{Name: "sms.lent", Rate: limiter.Rate{Count: 5, Window: 2 * time.Second}},
		Cost:  1, RedissonName: "lent", RedissonFormat: form(t),
	}}
	if err := l.store.Take(brief(t), claims, &d); err != nil || !d.Allowed {
		t.Fatalf("Take = %+v, %v", d, err)
	}
	await.Until(t, "nothing is left of it", func() bool { return len(l.eye.Keys(t.Context(), "*lent*").Val()) == 0 })
	l.do("true", "ann", "rate.set", "lent", 3, time.Hour.Milliseconds(), 0)
	for _, allowed := range []bool{true, true, true, false} {
		if err := l.store.Take(brief(t), claims, &d); err != nil || d.Allowed != allowed {
			t.Fatalf("Take = %+v, %v; want %v, by what Java set", d, err, allowed)
		}
	}
	l.do("false", "ann", "rate.take", "lent", 1)
}
