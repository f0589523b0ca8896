//go:build java

package redisson

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// A limiter that Java has filled costs a proxy little, and its other routes nothing:
// with the usual timeout and breaker no decision is made without Redis.
func TestRate_AFullLimiterHoldsUpNobody(t *testing.T) {
	const many = 20_000
	l := newLimited(t, 0)
	l.do("true", "ann", "rate.set", "full", many, time.Hour.Milliseconds(), 0)
	filled := make([]*reply, 4)
	for i := range filled { // each actor a part: none takes long
		filled[i] = l.begin([]string{"ann", "bob", "cid", "dan"}[i], "rate.fill", "full", many/len(filled))
	}
	for _, f := range filled {
		f.is("5000")
	}
	rdb, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{l.server.Addr}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rdb.Close() })
	store := redisstore.New(rdb, redisstore.Options{Timeout: time.Second, Denials: -1})
	t.Cleanup(func() { store.Close() })
	full := limiter.Claim{Limit: &limiter.Limit{Name: "full", Rate: limiter.Rate{Count: 1, Window: time.Hour}}, Cost: 1, RedissonName: "full", RedissonFormat: form(t)}
	other := limiter.Claim{Limit: &limiter.Limit{Name: "other", Rate: limiter.Rate{Count: 1000, Window: time.Hour}}, Cost: 1}
	for range 40 {
		var d limiter.Decision
		if err := store.Take(t.Context(), []limiter.Claim{full}, &d); err != nil || d.Allowed || d.Wait <= 0 || d.Wait > time.Hour {
			t.Fatalf("full: %+v, %v", d, err)
		}
		if err := store.Take(t.Context(), []limiter.Claim{other}, &d); err != nil || !d.Allowed {
			t.Fatalf("other: %+v, %v", d, err)
		}
	}
	slow, err := l.eye.ConfigGet(t.Context(), "slowlog-log-slower-than").Result()
	if err != nil || slow["slowlog-log-slower-than"] != "10000" {
		t.Fatal(slow, err)
	}
	logs := l.eye.SlowLogGet(t.Context(), 100).Val()
	if n := len(logs); n > 2 { // a machine may stop, but not so often
		t.Errorf("%d commands took more than 10 ms: %v", n, longest(logs))
	}
}

func longest(logs []redis.SlowLog) (d time.Duration) {
	for _, l := range logs {
		d = max(d, l.Duration)
	}
	return d
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
