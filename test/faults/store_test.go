package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A storeFault disturbs the connections between Weir and Redis.
type storeFault struct {
	name    string
	quick   bool // is tried every time
	timeout time.Duration
	toxics  []string
	decides string // who decides meanwhile: redis, nobody (Redis does not reply at all), or either
}

var storeFaults = []storeFault{
	{"latency of 50 ms", true, 5 * time.Second, both("latency", `"latency": 25`), "redis"},
	{"jitter, 0 to 200 ms", false, 5 * time.Second, both("latency", `"latency": 50, "jitter": 50`), "redis"},
	{"replies in pieces of 3 bytes", false, 5 * time.Second, both("slicer", `"average_size": 3, "size_variation": 1, "delay": 10`), "redis"},
	{"bandwidth of 20 KB/s", false, 5 * time.Second, both("bandwidth", `"rate": 20`), "redis"},
	{"latency around redis.timeout", true, 100 * time.Millisecond, both("latency", `"latency": 50, "jitter": 40`), "either"},
	{"latency beyond redis.timeout", false, 100 * time.Millisecond, both("latency", `"latency": 1000`), "nobody"},
	{"reset after 30 ms", false, 200 * time.Millisecond, append([]string{afresh}, both("reset_peer", `"timeout": 30`)...), "either"},
	{"cut after 300 bytes of replies", true, 200 * time.Millisecond, []string{toxic("limit_data", "downstream", `"bytes": 300`)}, "either"},
	{"half-open: replies vanish", true, 200 * time.Millisecond, []string{toxic("timeout", "downstream", `"timeout": 0`)}, "nobody"},
	{"black hole", true, 200 * time.Millisecond, both("timeout", `"timeout": 0`), "nobody"},
	{"connections refused", false, 200 * time.Millisecond, []string{down}, "nobody"},
}

// Whatever happens between Weir and Redis, no limit grants more than its rate, each
// response comes in time, and afterwards Redis decides again and nothing is left.
func TestStore(t *testing.T) {
	t.Parallel()
	for _, f := range storeFaults {
		if !f.quick && !all() {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.holds(t)
		})
	}
}

const granted = 40 // by each limit

func (f storeFault) holds(t *testing.T) {
	server := redistest.Start(t)
	redis := newLink(t, server.Addr)
	w := start(t, fmt.Sprintf(`
store: redis
redis: {addrs: [%q], timeout: %v, breaker: {rest: 1s}}
routes:
  - {name: deny, match: {path: /deny}, respond: {body: ok}, limits: [{key: "header:X-Key", rate: %d/1h, on_store_failure: deny}]}
  - {name: local, match: {path: /local}, respond: {body: ok}, limits: [{key: "header:X-Key", rate: %d/1h}]}
`, redis.Listen, f.timeout, granted, granted), "")
	fresh := 0
	decided := func() bool { // by Redis, which alone may grant on this route
		fresh++
		return w.ask(w.URL+"/deny", fmt.Sprintf("fresh %d", fresh), 0).status == 200
	}
	await.Until(t, "Redis decides", decided)
	w.settle()

	redis.disturb(f.toxics...)
	grants := map[string]int{}
	for _, policy := range []string{"deny", "local"} {
		a := w.askMany(60, 12, func() answer { return w.ask(w.URL+"/"+policy, "one", 0) })
		grants[policy] = a.status[200]
		row(t, "Redis, on_store_failure: "+policy, f.name, a)
		if limit := f.timeout + slack; a.slowest > limit {
			t.Errorf("%s: a response took %v, and redis.timeout is %v", policy, a.slowest, f.timeout)
		}
		if !a.only(200, 429, 503) || policy == "local" && !a.only(200, 429) {
			t.Errorf("%s: %v", policy, a)
		}
		exact := map[string]int{"redis": granted, "nobody": 0}
		if policy == "local" {
			exact["nobody"] = granted
		}
		if want, known := exact[f.decides]; known && a.status[200] != want {
			t.Errorf("%s: %v; want %d granted", policy, a, want)
		}
	}

	redis.heal()
	await.Until(t, "Redis decides again", decided)
	for policy, n := range grants {
		again := w.askMany(60, 12, func() answer { return w.ask(w.URL+"/"+policy, "one", 0) })
		if n += again.status[200]; n > granted {
			t.Errorf("%s: %d granted, of %d", policy, n, granted)
		}
	}
	w.wantNoLeak()
}
