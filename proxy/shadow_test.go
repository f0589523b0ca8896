package proxy

import (
	"fmt"
	"github.com/redis/go-redis/v9"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/test/redistest"
	"strings"
	"testing"
)

// However many limits of a route are in shadow mode: a decision is one call to Redis.
func TestShadow_IsNoFurtherCall(t *testing.T) {
	addr := redistest.Start(t).Addr
	w := newProxy(t, limitYAML(`{name: own, key: global, rate: 3/1h}, {name: a, key: "header:X-User", rate: 1/1h, mode: shadow}, `+
		`{name: b, key: "header:X-Phone", rates: [9/1h, 99/1d], mode: shadow, algorithm: gcra}, {name: c, key: client_ip, rate: 9/1h, mode: shadow, algorithm: sliding_log}`),
		func(o *Options) { o.Store = redisStore(t, addr) })
	admin := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { admin.Close() })
	scripts := func() (n int) {
		info, err := admin.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"eval", "evalsha"} {
			if _, rest, found := strings.Cut(info, "cmdstat_"+name+":calls="); found {
				var calls int
				fmt.Sscanf(rest, "%d", &calls)
				n += calls
			}
		}
		return n
	}
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
