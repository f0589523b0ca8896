package proxy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/test/redistest"
)

// resetting are two routes: one with a cooldown that the other's success ends.
const resetting = `
keys: {phone: {from: "header:X-Phone", normalize: digits}}
routes:
  - {name: send, match: {path: /send}, upstream: 'URL', refund_on: {status: [5xx]}, limits: [{name: backoff, key: phone, cooldown: [1m, 5m], reset_on: {route: verify, status: [2xx]}}]}
  - {name: verify, match: {path: /verify}, upstream: 'URL', limits: [{name: guesses, key: phone, rate: 100/1h}]}
`

func TestCooldown_GrowsAndBeginsAnew(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newFor(t, resetting, use)
		w.sends(503, "POST", "/send?status=503", "X-Phone: 1") // given back: as if it had not been
		w.sends(200, "POST", "/send", "X-Phone: 1")
		rec := w.sends(429, "POST", "/send", "X-Phone: 1")
		w.hasField(rec, "RateLimit", `"backoff";r=0;t=60`)
		w.sends(200, "POST", "/send", "X-Phone: 2")
		w.sends(403, "POST", "/verify?status=403", "X-Phone: 1")
		w.sends(200, "POST", "/verify", "X-Phone: 3")
		w.sends(429, "POST", "/send", "X-Phone: 1")
		w.sends(204, "POST", "/verify?status=204", "X-Phone: + 1")
		w.sendsAll([]int{200, 429}, "POST", "/send", "X-Phone: 1")
		w.sends(429, "POST", "/send", "X-Phone: 2")
		for _, method := range []string{"OPTIONS", "HEAD", "TRACE"} { // many servers answer these by themselves
			w.sends(200, method, "/verify", "X-Phone: 2")
			w.sends(429, "POST", "/send", "X-Phone: 2")
		}
		w.counted(2, w.metrics.Resets.WithLabelValues("send", "backoff"))
	})
}

// The pauses grow with each request that passes, not with those that are refused.
func TestCooldown_Steps(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, cooldown: [1s, 3s]}", func(t *testing.T, w *testProxy) {
		start := time.Now()
		for _, at := range []time.Duration{0, time.Second, 4 * time.Second, 7 * time.Second} {
			for since := time.Since(start); since < at; since = time.Since(start) {
				w.sends(429, "GET", "/a")
				advanceTime(500 * time.Millisecond)
			}
			w.sends(200, "GET", "/a")
		}
		advanceTime(6 * time.Second) // twice the last step
		w.sends(200, "GET", "/a")
		advanceTime(time.Second)
		w.sendsAll([]int{200, 429}, "GET", "/a")
	})
}

// fan is a route on which an address may use two phones, and fail to.
const fan = `refund_on: {status: [5xx]}, limits: [{name: each, key: header:X-Phone, rate: 3/1h}, {name: fan, key: client_ip, distinct: header:X-Phone, rates: [2/1h, 3/1d]%s}]`

func (p *testProxy) phone(want int, phone string, query ...string) {
	p.Helper()
	p.sends(want, "POST", "/a?"+strings.Join(query, "&"), "X-Phone: "+phone)
}

// Values are counted, not requests: the same one passes as often as the other
// limits let it, also after another was refused.
func TestDistinct_CountsValues(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, "")), use)
		w.phone(200, "1")
		w.phone(200, "2")
		w.phone(429, "3")
		w.phone(200, "1")
		w.phone(429, "3")
		w.phone(200, "2")
		w.phone(200, "1")
		w.phone(429, "1") // its own limit
		w.phone(429, "4")
		rec := w.sends(200, "POST", "/a", "X-Phone: 2")
		if got, want := rec.Header().Get("RateLimit"), `"fan-1h";r=0, "fan-1d";r=1`; !strings.Contains(got, want) {
			t.Errorf("RateLimit = %s; want %s in it: the same number may come again", got, want)
		}
		rec = w.sends(429, "POST", "/a", "X-Phone: 5")
		if got := rec.Body.String(); !strings.Contains(got, `"violated-policies":["fan-1h"]`) {
			t.Errorf("%s; want fan-1h violated", got)
		}
	})
}

// A request that is given back, or that another limit refuses, leaves no value.
func TestDistinct_WhatIsGivenBackDoesNotStand(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, "")), use)
		for i := range 5 {
			w.phone(503, fmt.Sprint("failed", i), "status=503")
		}
		for range 3 {
			w.phone(200, "1")
		}
		w.phone(429, "1")
		w.phone(200, "2")
		w.phone(429, "3")
	})
}

func TestDistinct_CountPenaltyAndShadow(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, ", count: {status: [4xx]}")), use)
		for i := range 5 {
			w.phone(200, fmt.Sprint("fine", i))
		}
		w.phone(404, "1", "status=404")
		w.phone(404, "2", "status=404")
		w.phone(429, "3")
		w.phone(200, "2")
	})
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, ", penalty: {ban: 1h, after: 2}")), use)
		w.phone(200, "1")
		w.phone(200, "2")
		w.phone(429, "3")
		w.phone(429, "4")
		w.phone(429, "1") // banned now
	})
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, fmt.Sprintf(fan, ", mode: shadow")), use)
		for i := range 5 {
			w.phone(200, fmt.Sprint(i))
		}
		w.counted(3, w.metrics.Decisions.WithLabelValues("a", "fan", limit.ShadowRefused))
	})
}

func TestPenalize_BansAfterSoManyRefusals(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, limitYAML(`{name: all, key: global, rate: 1000/1h}, {name: l, key: header:X-User, rates: [2/1m, 50/10m], penalty: {ban: 1h, after: 3}}`), use)
		w.sendsAll(times(2, 200), "GET", "/a", "X-User: alice")
		for i := range 6 {
			rec := w.sends(429, "GET", "/a", "X-User: alice")
			after, _ := strconv.Atoi(rec.Header().Get("Retry-After"))
			if banned := after >= 3590; banned != (i >= 2) {
				t.Errorf("refusal %d: Retry-After = %d; want an hour from the third on", i+1, after)
			}
			if i == 4 {
				if got := rec.Header().Get("RateLimit"); !strings.Contains(got, `"l-1m";r=0;t=3`) {
					t.Errorf("RateLimit = %s; want nothing for an hour", got)
				}
			}
		}
		w.sends(200, "GET", "/a", "X-User: bob")
		w.counted(1, w.metrics.Bans.WithLabelValues("a", "l"))
		lines := w.lines("request")
		for i, want := range []any{nil, true, true} {
			if got := lines[3+i]; got["banned"] != want || (got["ban_began"] == true) != (i == 1) || got["rate"] != "l-1m" {
				t.Errorf("%v; want the third refusal to ban, and those after it to be for the ban", got)
			}
		}
	})
}

// After its ban a key begins anew: the refusals from before are forgotten.
func TestPenalize_BeginsAnewAfterTheBan(t *testing.T) {
	now := time.Now()
	w := newProxy(t, limitYAML(`{name: l, key: global, rate: 1/1m, penalty: {ban: 1h, after: 2}}`), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	})
	for range 2 {
		w.sends(200, "GET", "/a")
		for i := range 3 {
			rec := w.sends(429, "GET", "/a")
			after, _ := strconv.Atoi(rec.Header().Get("Retry-After"))
			if (after >= 3600) != (i >= 1) {
				t.Errorf("refusal %d: Retry-After = %d; want a ban from the second on", i+1, after)
			}
		}
		now = now.Add(59 * time.Minute)
		w.sends(429, "GET", "/a")
		now = now.Add(2 * time.Minute)
	}
}

// Refusals that others cause, and those further apart than the window, do not
// count.
func TestPenalize_CountsOnlyItsOwn(t *testing.T) {
	now := time.Now()
	w := newProxy(t, limitYAML(`{name: other, key: global, rate: 1/1s}, {name: l, key: header:X-User, rate: 1/1m, penalty: {ban: 1h, after: 2}}`), func(o *Options) {
		o.Store = limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	})
	w.sends(200, "GET", "/a", "X-User: bob")
	w.sendsAll(times(9, 429), "GET", "/a", "X-User: alice") // by other
	for range 5 {
		now = now.Add(61 * time.Second)
		w.sends(200, "GET", "/a", "X-User: alice")
		now = now.Add(time.Second)
		w.sends(429, "GET", "/a", "X-User: alice")
	}
	w.counted(0, w.metrics.Bans.WithLabelValues("a", "l"))
}

// However many limits of a route are in shadow mode: a decision is one call to Redis.
func TestShadow_IsNoFurtherCall(t *testing.T) {
	addr := redistest.Start(t).Addr
	w := newProxy(t, limitYAML(`{name: own, key: global, rate: 3/1h}, {name: a, key: "header:X-User", rate: 1/1h, mode: shadow}, `+
		`{name: b, key: "header:X-Phone", rates: [9/1h, 99/1d], mode: shadow, algorithm: gcra}, {name: c, key: client_ip, rate: 9/1h, mode: shadow, algorithm: sliding_log}`),
		func(o *Options) { o.Store = redisStore(t, addr) })
	admin := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { admin.Close() })
	scripts := func() int { return redistest.Scripts(t, admin).Calls }
	w.sends(200, "GET", "/a", "X-User: first", "X-Phone: first") // scripts are unknown to Redis at first
	for i, want := range []int{200, 200, 429} {
		before := scripts()
		w.sends(want, "GET", "/a", "X-User: ann", "X-Phone: 1")
		if n := scripts() - before; n != 1 {
			t.Errorf("request %d: %d calls of scripts, want 1", i, n)
		}
	}
	for name, want := range map[string]float64{"a": 1, "b": 0, "c": 0} {
		w.counted(want, w.metrics.Decisions.WithLabelValues("a", name, limit.ShadowRefused))
	}
	w.counted(2, w.metrics.Decisions.WithLabelValues("a", "a", limit.Allowed))
}

// Of two proxies on one Redis each has the whole rate of a limit that counts for
// each by itself, and both together have that of one that does not; while Redis is
// away the share of the former is not divided.
func TestScope_PerClient(t *testing.T) {
	server := redistest.Start(t)
	as := func(name string) *testProxy {
		return newProxy(t, `
store: redis
routes:
  - {name: own, match: {path: /own}, respond: {body: ok}, limits: [{key: 'header:X-User', rate: 2/1h, scope: per_instance}]}
  - {name: all, match: {path: /all}, respond: {body: ok}, limits: [{key: 'header:X-User', rate: 2/1h}]}
`, func(o *Options) {
			o.Store = redisStoreOf(t, redisstore.ClientConfig{Addrs: []string{server.Addr}}, redisstore.Options{Client: name, CachedRefusals: -1})
			o.Nodes = func() int { return 2 }
			o.Config.Redis.Timeout = time.Minute
		})
	}
	a, b := as("a"), as("b")
	for _, w := range []*testProxy{a, b} {
		w.sendsAll([]int{200, 200, 429}, "GET", "/own", "X-User: a")
	}
	a.sends(200, "GET", "/all", "X-User: a")
	b.sends(200, "GET", "/all", "X-User: a")
	a.sends(429, "GET", "/all", "X-User: a")
	again := as("a") // the same name, as after a restart
	again.sends(429, "GET", "/own", "X-User: a")
	server.Kill()
	b.sends(429, "GET", "/own", "X-User: a") // what it had before counts on
	b.sendsAll([]int{200, 200, 429}, "GET", "/own", "X-User: b")
	b.sendsAll([]int{200, 429}, "GET", "/all", "X-User: b")
}

// A limit with redisson_name counts where Java programs look, under the key's
// normalized text, and goes by the rate that they have set.
func TestRoute_SharesALimiterWithJava(t *testing.T) {
	addr := redistest.Start(t).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	w := newProxy(t, `
keys: {phone: {from: "header:X-Phone", normalize: digits}}
routes:
  - {name: a, match: {path: /a}, upstream: echo, limits: [{key: phone, rate: 3/1h, redisson_name: "java:{key}"}]}
  - {name: b, match: {path: /b}, upstream: echo, limits: [{key: "header:X-User", rate: 3/1h, redisson_name: "java{b}:{key}"}]}
  - {name: c, match: {path: /c}, upstream: echo, limits: [{key: "header:X-User", rate: 3/1h, redisson_name: "old:{key}", redisson_version: 3.13.1}]}
`, func(o *Options) { o.Store = redisStore(t, addr) })
	ctx := t.Context()
	if err := client.HSet(ctx, "java:2", "rate", "1", "interval", "3600000", "type", "0").Err(); err != nil {
		t.Fatal(err)
	}
	w.sendsAll(times(3, 200), "GET", "/a", "X-Phone: +1")
	w.sends(429, "GET", "/a", "X-Phone: 1")
	if left, err := client.Get(ctx, "{java:1}:value").Result(); err != nil || left != "0" {
		t.Errorf("{java:1}:value = %q, %v; want 0, where Java looks", left, err)
	}
	w.sends(200, "GET", "/a", "X-Phone: 2")
	w.sends(429, "GET", "/a", "X-Phone: 2") // the rate that Java has set
	for _, bad := range []string{"a{b}{c}", "{a}", "a}", "555:permits", "555:value", "permits", "555:value:1", "a b", "a\x07", "a\xff", strings.Repeat("a", 600)} {
		w.sends(400, "GET", "/b", "X-User: "+bad) // names that are keys of other limiters, or none
	}
	for _, good := range []string{"555", "a:b", "permits2"} {
		w.sends(200, "GET", "/b", "X-User: "+good)
	}
	w.sends(200, "GET", "/c", "X-User: a")
	if v, ttl := client.Get(ctx, "{old:a}:value").Val(), client.PTTL(ctx, "{old:a}:value").Val(); v != "2" || ttl <= 0 || client.Exists(ctx, "{old:a}:permits").Val() != 0 {
		t.Errorf("{old:a}:value = %q for %v; want 2, a window, and no entries", v, ttl)
	}
}
