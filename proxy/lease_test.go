package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/upstream"
)

func TestHold_BoundsWhatIsUnderWay(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		came, let := make(chan struct{}), make(chan struct{})
		w := newProxy(t, upstreamYAML(t, slowHandler(came, let), `limits: [{name: inflight, key: header:X-User, concurrent: 2}, {name: all, key: global, rate: 100/1h}]`), use)
		var under sync.WaitGroup
		for range 2 {
			under.Go(func() { w.sends(200, "GET", "/a", "X-User: alice") })
			<-came
		}
		rec := w.sends(429, "GET", "/a", "X-User: alice")
		if got, want := rec.Header().Get("RateLimit-Policy"), `"inflight";q=2;qu="concurrent-requests", "all";q=100;w=3600`; got != want {
			t.Errorf("RateLimit-Policy = %s; want %s", got, want)
		}
		if got, want := rec.Header().Get("RateLimit"), `"inflight";r=0;t=1, "all";r=98`; !strings.HasPrefix(got, want) {
			t.Errorf("RateLimit = %s; want %s", got, want)
		}
		if got := rec.Header().Get("Retry-After"); got != "1" && got != "2" {
			t.Errorf("Retry-After = %s; want soon, for what is under way may end at any moment", got)
		}
		close(let)
		go func() {
			for range came {
			}
		}()
		defer close(came)
		under.Wait()
		for range 5 {
			w.sends(200, "GET", "/a", "X-User: alice") // one after the other is one at a time
		}
		if got := testutil.ToFloat64(w.metrics.refunds.WithLabelValues("a", "inflight")); got != 0 {
			t.Errorf("weir_refunds_total = %v; a request that is over is no refund", got)
		}
	})
}

// A client that leaves, or a target that fails, holds nothing any longer.
func TestHold_EndsWithTheRequest(t *testing.T) {
	came, let := make(chan struct{}, 1), make(chan struct{})
	defer close(let)
	w := newProxy(t, upstreamYAML(t, slowHandler(came, let), `limits: [{name: l, key: global, concurrent: 1}]`))
	ctx, leave := context.WithCancel(t.Context())
	var gone sync.WaitGroup
	gone.Go(func() {
		w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/a", nil))
	})
	<-came
	w.sends(429, "GET", "/a")
	leave()
	gone.Wait()
	func() {
		defer func() { recover() }()
		http.HandlerFunc(w.ServeHTTP).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/a", nil))
	}()
	if got := w.lines("request"); got[len(got)-1]["status"] == 429.0 {
		t.Errorf("%v; want the permit back", got[len(got)-1])
	}
}

// held makes an admitter and an admission that asks for one of one permit.
func held(store limiter.AdminStore) (*admitter, *admission) {
	a := &admitter{store: store, fallback: newFallback(store, func() int { return 1 }), metrics: newMetrics(prometheus.NewRegistry())}
	l := &limit{Limit: &config.Limit{Name: "l", Mode: config.Enforce}}
	w := &window{of: l, Limit: limiter.Limit{Name: "a.l:held", Algorithm: limiter.Concurrent, Rate: limiter.Rate{Count: 1, Window: config.Lease}}}
	q := &admission{route: &route{Route: &config.Route{Name: "a"}, windows: []*window{w}, holds: true, settles: true}}
	q.claims.add([]*window{w}, &limiter.Claim{Key: limiter.KeyOf("k"), Cost: 1})
	return a, q
}

// A request that lasts much longer than the lease holds its permit all the time,
// and one whose process is gone loses it with the lease.
func TestHold_RenewsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		a, q := held(store)
		if err := a.admit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			<-time.After(config.Lease / 2)
			_, other := held(store)
			if err := a.admit(t.Context(), other); err == nil {
				t.Fatal("a second request passed while the first was under way")
			}
		}
		a.settle(t.Context(), q, &forwardOutcome{result: upstream.Result{Kind: upstream.OK, Status: 200, Target: "t"}})
		q.stopRenewing()
		_, next := held(store)
		if err := a.admit(t.Context(), next); err != nil {
			t.Errorf("after the first request has ended: %v", err)
		}
		next.stopRenewing() // as if this process had died: nobody renews, nobody gives back
		<-time.After(config.Lease - time.Second)
		_, other := held(store)
		if err := a.admit(t.Context(), other); err == nil {
			t.Error("passed before the lease ran out")
		}
		<-time.After(2 * time.Second)
		if err := a.admit(t.Context(), other); err != nil {
			t.Errorf("after the lease: %v", err)
		}
		other.stopRenewing()
	})
}
