package proxy

import (
	"github.com/weir-proxy/weir/test/redistest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

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
	for range 3 {
		w.sends(200, "GET", "/a", "X-Phone: +1")
	}
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
