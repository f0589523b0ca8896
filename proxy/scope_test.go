package proxy

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

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
		w.sends(200, "GET", "/own", "X-User: a")
		w.sends(200, "GET", "/own", "X-User: a")
		w.sends(429, "GET", "/own", "X-User: a")
	}
	a.sends(200, "GET", "/all", "X-User: a")
	b.sends(200, "GET", "/all", "X-User: a")
	a.sends(429, "GET", "/all", "X-User: a")
	again := as("a") // the same name, as after a restart
	again.sends(429, "GET", "/own", "X-User: a")
	server.Kill()
	b.sends(429, "GET", "/own", "X-User: a") // what it had before counts on
	for _, want := range []int{200, 200, 429} {
		b.sends(want, "GET", "/own", "X-User: b")
	}
	for _, want := range []int{200, 429} {
		b.sends(want, "GET", "/all", "X-User: b")
	}
}
