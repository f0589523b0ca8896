package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// inWaitBubble is a proxy in a bubble of its own time, with one route /a.
func inWaitBubble(t *testing.T, limits string, test func(t *testing.T, w *testProxy)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, newProxy(t, "routes:\n  - {name: a, match: {path: /a}, respond: {body: ok}, limits: ["+limits+"]}\n"))
	})
}

// advanceTime lets d go by in a bubble of queueing.
func advanceTime(d time.Duration) { time.Sleep(d) }

// crowd sends n requests, each after the one before waits or has its answer, and
// returns the statuses and times of the answers in the order of the requests.
func (p *testProxy) crowd(n int) []string {
	start, got := time.Now(), make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			rec := p.send("GET", "/a")
			got[i] = fmt.Sprint(rec.Code, " ", time.Since(start))
		})
		synctest.Wait()
	}
	all.Wait()
	return got
}

func (p *testProxy) waits(want ...float64) {
	p.Helper()
	var got []float64
	for _, how := range []string{"passed", "refused", "crowded", "gone"} {
		got = append(got, testutil.ToFloat64(p.metrics.Waits.WithLabelValues("a", "l", how)))
	}
	if !slices.Equal(got, want) {
		p.Errorf("weir_waits_total passed, refused, crowded, gone = %v; want %v", got, want)
	}
	p.counted(0, p.metrics.Waiting.WithLabelValues("a", "l"))
}

// Requests pass as soon as the rate lets them, in the order in which they came;
// whose turn comes too late is refused without waiting.
func TestWait_FirstComeFirstServed(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 250ms}", func(t *testing.T, w *testProxy) {
		want := []string{"200 0s", "200 100ms", "200 200ms", "429 200ms", "429 200ms"} // when it is known that 300 ms is too late
		if got := w.crowd(5); !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v", got, want)
		}
		w.waits(2, 2, 0, 0)
	})
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/1s, wait: 250ms}", func(t *testing.T, w *testProxy) {
		if got, want := w.crowd(3), []string{"200 0s", "429 0s", "429 0s"}; !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v", got, want)
		}
		w.waits(0, 0, 0, 0)
	})
}

func TestWait_IsBounded(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 10s, max_waiting: 2}", func(t *testing.T, w *testProxy) {
		want := []string{"200 0s", "200 100ms", "200 200ms", "429 0s", "429 0s"}
		if got := w.crowd(5); !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v", got, want)
		}
		w.waits(2, 0, 2, 0)
	})
}

// A limit that says nothing of waiting refuses at once; of two that do, each is
// waited for as long as it says.
func TestWait_AmongOtherLimits(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 1s}, {name: day, key: client_ip, rate: 2/1d}", func(t *testing.T, w *testProxy) {
		want := []string{"200 0s", "200 100ms", "429 100ms"}
		if got := w.crowd(3); !slices.Equal(got, want) {
			t.Errorf("answers %v; want the third to be refused when its turn has come", got)
		}
		if got := w.crowd(1); !slices.Equal(got, []string{"429 0s"}) {
			t.Errorf("with nobody in line %v; want a refusal at once", got)
		}
	})
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 1s}, {name: m, key: client_ip, rate: 2/1s, wait: 500ms}", func(t *testing.T, w *testProxy) {
		want := []string{"200 0s", "200 100ms", "429 100ms"}
		if got := w.crowd(3); !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v", got, want)
		}
	})
}

// Who leaves while waiting has taken nothing.
func TestWait_LeavingTakesNothing(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 10s}", func(t *testing.T, w *testProxy) {
		w.sends(200, "GET", "/a")
		ctx, leave := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		gone.Go(func() {
			serveLoggedUntil(ctx, w.Proxy, LoggedRequest{Method: "GET", Host: "example.com", Target: "/a", Client: netip.MustParseAddr("192.0.2.1")})
		})
		synctest.Wait()
		leave()
		gone.Wait()
		if got, want := w.crowd(2), []string{"200 100ms", "200 200ms"}; !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v", got, want)
		}
		w.waits(2, 0, 0, 1)
		if lines := w.lines("request"); lines[1]["status"] != 499.0 {
			t.Errorf("the log says %v; want 499", lines[1])
		}
	})
}

// A store that fails is not waited for: the policy of each limit decides.
func TestWait_NotForAStoreThatFails(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 10s}", func(t *testing.T, w *testProxy) {
		w.store.fail(limiter.ErrUnavailable)
		if got, want := w.crowd(2), []string{"200 0s", "429 0s"}; !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v, decided in this process", got, want)
		}
	})
}

// Several proxies that share a store keep the rate together while their clients
// wait.
func TestWait_OverASharedStore(t *testing.T) {
	// A busy machine may take its time, and yet no decision is to be left to the fallback.
	slow := func(o *Options) { o.Config.Store, o.Config.Redis.Timeout = config.StoreRedis, time.Minute }
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, "routes:\n  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: client_ip, rate: 2/200ms, wait: 30s}]}\n", use, slow)
		began := time.Now()
		atOnce(7, func(int) bool { w.sends(200, "GET", "/a"); return true })
		const shortest = 3 * (200 - 1) * time.Millisecond // stores count in whole milliseconds
		if took := time.Since(began); took < shortest {
			t.Errorf("7 requests passed in %v; 2 may in 200 ms", took)
		}
	})
}
