package proxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/metrics"
	"github.com/weir-proxy/weir/proxy/stripe"
)

// held makes an admitter and an admission that asks for one of one permit.
func held(store limiter.AdminStore) (*admitter, *admission) {
	a := &admitter{store: store, fallback: newFallback(store, func() int { return 1 }), metrics: newTestMetrics()}
	l := &limit{Limit: &config.Limit{Name: "l", Mode: config.Enforce}}
	w := &window{of: l, Limit: limiter.Limit{Name: "a.l:held", Algorithm: limiter.Concurrent, Rate: limiter.Rate{Count: 1, Window: config.Lease}}}
	w.Owner = w
	q := &admission{route: &limitRoute{Route: &config.Route{Name: "a"}, windows: []*window{w}, settles: true}}
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
		a.settle(t.Context(), q, settledOutcome{status: 200})
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

// A held permit is renewed while it is held, and returned once.
func TestHold_LongerThanTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := limiter.NewMemory(limiter.MemoryOptions{})
		a, q := held(store)
		if err := a.admit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		const during = 2*config.Lease + time.Second
		a.hold(q, during)
		a.settle(t.Context(), q, settledOutcome{})
		q.stopRenewing()
		_, other := held(store)
		<-time.After(during - time.Millisecond)
		if err := a.admit(t.Context(), other); err == nil {
			t.Error("passed before the permit was held long enough")
		}
		<-time.After(2 * time.Millisecond)
		if err := a.admit(t.Context(), other); err != nil {
			t.Errorf("after the time to hold: %v", err)
		}
		<-time.After(during) // the first lease does not return the permit of the other
		_, third := held(store)
		if err := a.admit(t.Context(), third); err == nil {
			t.Error("passed while the other request was in progress")
		}
		other.stopRenewing()
	})
}

// The memory for held leases is bounded, and none are held when the proxy closes.
func TestHold_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all heldLeases
		l := startLease(limiter.NewMemory(limiter.MemoryOptions{}), []limiter.Claim{{Limit: &limiter.Limit{Algorithm: limiter.Concurrent}}}, limiter.Permit{})
		for range maxHeldLeases {
			if !all.add(&lease{timer: l.timer}, time.Hour, time.Now()) {
				t.Fatal("a lease is not held below the bound")
			}
		}
		if all.add(l, time.Hour, time.Now()) {
			t.Error("more leases are held than the bound")
		}
		l.end()
		all = heldLeases{}
		all.close()
		if all.add(l, time.Hour, time.Now()) {
			t.Error("a lease is held after close")
		}
	})
}

// A decision by a single call of the store gets a context that costs nothing, and that does not end
// with the client.
func TestCost_NoContextForASingleCall(t *testing.T) {
	a, q := &admitter{timeout: time.Second}, &admission{route: &limitRoute{}}
	client, leave := context.WithCancel(t.Context())
	if n := testing.AllocsPerRun(100, func() {
		_, cancel := a.withTimeoutForAll(client, q)
		cancel()
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
	ctx, cancel := a.withTimeoutForAll(client, q)
	defer cancel()
	leave()
	if ctx.Err() != nil {
		t.Errorf("the decision ends with its client: %v", ctx.Err())
	}
}

func newTestMetrics() *limitMetrics {
	stripes := stripe.New()
	return newLimitMetrics(prometheus.NewRegistry(), stripes, metrics.NewBuckets(stripes.Count()))
}
