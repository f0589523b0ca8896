package convert

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// converted returns the first limit of the first route that a file is converted into.
func converted(t *testing.T, program, file string) *config.Limit {
	t.Helper()
	result, err := Convert(program, "file", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadText("weir.yaml", result.YAML)
	if err != nil {
		t.Fatalf("%v\n%s", err, result.YAML)
	}
	return c.Routes[0].Limits[0]
}

// claims are the claims of a request under a limit.
func claims(l *config.Limit) []limiter.Claim {
	return []limiter.Claim{{
		Limit: &limiter.Limit{Name: l.Name, Rate: l.Rates[0], Algorithm: l.Algorithm, Burst: l.Burst},
		Key:   limiter.KeyOf("198.51.100.7"),
		Cost:  1,
	}}
}

// An nginxModel is one node of a zone, in the units of nginx: milliseconds, and thousandths of
// requests.
type nginxModel struct{ rate, burst, delay, excess, last int64 }

// request returns whether nginx admits a request at now, and for how long it delays it.
func (m *nginxModel) request(now int64) (admitted bool, delay int64) {
	excess := m.excess - m.rate*(now-m.last)/1000 + 1000
	if m.last == 0 {
		excess = 0 // a new node
	}
	excess = max(excess, 0)
	if excess > m.burst {
		return false, 0
	}
	m.excess, m.last = excess, now
	return true, max(0, (excess-m.delay)*1000/m.rate)
}

// arrivals are n times in milliseconds, each a multiple of ten, with these pauses on average.
func arrivals(seed uint64, n int, pause int64) []int64 {
	random := rand.New(rand.NewPCG(seed, 26))
	at := int64(1_000_000)
	var all []int64
	for range n {
		all = append(all, at)
		if random.IntN(4) > 0 { // some come at once
			at += random.Int64N(pause/5+1) * 10
		}
		if random.IntN(50) == 0 {
			at += 20 * pause // a rest
		}
	}
	return all
}

// A limit_req with nodelay admits exactly the requests that gcra admits with a burst that is
// one larger.
func TestConvert_NginxWithoutDelayAdmitsTheSame(t *testing.T) {
	for _, test := range []struct {
		zone      string
		perSecond int64 // in thousandths
		burst     int64
	}{
		{"10r/s", 10_000, 0}, {"10r/s", 10_000, 1}, {"10r/s", 10_000, 20}, {"1r/s", 1000, 5}, {"100r/s", 100_000, 50}, {"30r/m", 500, 3}, {"6r/m", 100, 0},
	} {
		file := fmt.Sprintf("limit_req_zone $binary_remote_addr zone=a:1m rate=%s;\nserver { location / { limit_req zone=a burst=%d nodelay; } }", test.zone, test.burst)
		l := converted(t, "nginx", file)
		var now time.Time
		store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
		model := nginxModel{rate: test.perSecond, burst: test.burst * 1000}
		admitted := 0
		for i, at := range arrivals(13, 3000, 1000_000/test.perSecond) {
			now = time.UnixMilli(at)
			want, _ := model.request(at)
			var d limiter.Decision
			if err := store.Take(t.Context(), claims(l), &d); err != nil {
				t.Fatal(err)
			}
			if d.Allowed != want {
				t.Fatalf("%s: request %d at %d: admitted %v, by nginx %v", file, i, at, d.Allowed, want)
			}
			if d.Allowed {
				admitted++
			}
		}
		if admitted < 100 || admitted == 3000 {
			t.Errorf("%s: %d of 3000 admitted, which shows nothing", file, admitted)
		}
	}
}

// ingress-nginx multiplies the burst by five, or as its annotation says.
func TestConvert_IngressMultipliesTheBurst(t *testing.T) {
	for multiplier, burst := range map[string]int64{"": 5, "limit-burst-multiplier: '3'": 3} {
		if multiplier != "" {
			multiplier = ingressPrefix + multiplier
		}
		l := converted(t, "ingress-nginx", "kind: Ingress\nmetadata:\n  name: a\n  annotations:\n    "+ingressPrefix+"limit-rps: '4'\n    "+multiplier+
			"\nspec: {rules: [{http: {paths: [{backend: {service: {name: b, port: {number: 80}}}}]}}]}")
		store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return time.UnixMilli(1) }})
		model := nginxModel{rate: 4000, burst: 4 * burst * 1000}
		for i := range 50 {
			want, _ := model.request(1)
			var d limiter.Decision
			if err := store.Take(t.Context(), claims(l), &d); err != nil || d.Allowed != want {
				t.Fatalf("request %d: admitted %v (%v), by nginx %v", i, d.Allowed, err, want)
			}
		}
	}
}

// A passage is a request that went on, and when.
type passage struct {
	at, passed int64
}

// pass runs requests at these times, one goroutine each, and returns those that passed.
func pass(t *testing.T, l *config.Limit, times []int64) []passage {
	t.Helper()
	var mu sync.Mutex
	var passed []passage
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q := limiter.NewWaitQueue(limiter.NewMemory(limiter.MemoryOptions{}), time.Second)
		var all sync.WaitGroup
		for _, at := range times {
			time.Sleep(time.Duration(at-times[0])*time.Millisecond - time.Since(start))
			all.Go(func() {
				var d limiter.Decision
				o := limiter.WaitOptions{MaxWait: []time.Duration{l.Wait}, MaxWaiting: l.MaxWaiting}
				if err := q.Wait(context.Background(), claims(l), &d, o); err == nil && d.Allowed {
					mu.Lock()
					defer mu.Unlock()
					passed = append(passed, passage{at, times[0] + time.Since(start).Milliseconds()})
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
	return passed
}

// As many requests pass as pass in nginx with a delay, each at most an interval earlier or
// later: when more come than may wait, it is another one that waits.
func TestConvert_NginxWithDelayPassesTheSame(t *testing.T) {
	for _, test := range []struct {
		zone         string
		perSecond    int64
		burst, delay int64
		option       string
	}{
		{"10r/s", 10_000, 5, 0, ""}, {"10r/s", 10_000, 12, 8, "delay=8"}, {"1r/s", 1000, 2, 0, ""}, {"30r/m", 500, 3, 1, "delay=1"},
	} {
		file := fmt.Sprintf("limit_req_zone $binary_remote_addr zone=a:1m rate=%s;\nserver { location / { limit_req zone=a burst=%d %s; } }", test.zone, test.burst, test.option)
		l := converted(t, "nginx", file)
		times := arrivals(13, 400, 1000_000/test.perSecond)
		model := nginxModel{rate: test.perSecond, burst: test.burst * 1000, delay: test.delay * 1000}
		var want []passage
		delayed := 0
		for _, at := range times {
			if ok, delay := model.request(at); ok {
				want = append(want, passage{at, at + delay})
				if delay > 0 {
					delayed++
				}
			}
		}
		got := pass(t, l, times)
		if len(got) != len(want) {
			t.Errorf("%s: %d of %d passed, by nginx %d", file, len(got), len(times), len(want))
		}
		for i := range min(len(got), len(want)) {
			if off := got[i].passed - want[i].passed; off > 1000_000/test.perSecond || -off > 1000_000/test.perSecond {
				t.Errorf("%s: passage %d is %v, by nginx %v", file, i, got[i], want[i])
				break
			}
		}
		if delayed < 20 || len(want) == len(times) {
			t.Errorf("%s: %d delayed and %d refused, which shows nothing", file, delayed, len(times)-len(want))
		}
	}
}
