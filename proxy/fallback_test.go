package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A reportedStore store hears of what was granted in its place.
type reportedStore struct {
	*limiter.Memory
	absent    atomic.Bool // and decisions go on in its place
	back      atomic.Bool // absent, but it answers
	broken    atomic.Bool
	heard     map[[16]byte]int64
	withdrawn int
	told      atomic.Bool // reports go out at once
	refunds   atomic.Int64
}

func (r *reportedStore) Available() bool { return !r.absent.Load() }

func (r *reportedStore) Settling() bool { return r.back.Load() }

func (r *reportedStore) Report(claims []limiter.Claim, p limiter.Permit) {
	r.heard[p.ID] = claims[0].Cost
}

func (r *reportedStore) Withdraw(claims []limiter.Claim, p limiter.Permit) (others []limiter.Claim) {
	if _, found := r.heard[p.ID]; !found || r.told.Load() {
		return claims
	}
	delete(r.heard, p.ID)
	r.withdrawn++
	return nil
}

func (r *reportedStore) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	return func() error { return r.Refund(context.Background(), claims, p) }
}

func (r *reportedStore) StartReset(claims []limiter.Claim) (wait func() error) {
	return func() error { return r.Reset(context.Background(), claims) }
}

func (r *reportedStore) StartReturn(limits []*limiter.Limit, subject limiter.Key) (wait func() (int, error)) {
	return func() (int, error) { return r.Return(context.Background(), limits, subject) }
}

func (r *reportedStore) StartRefundReported(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	err := r.Refund(context.Background(), r.Withdraw(claims, p), p)
	return func() error { return err }
}

func (r *reportedStore) RenewReported(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return r.Renew(ctx, claims, p)
}

func (r *reportedStore) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if len(claims) > 0 {
		r.refunds.Add(1)
	}
	return r.Memory.Refund(ctx, claims, p)
}

func (r *reportedStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	if r.broken.Load() {
		return fmt.Errorf("%w: broken", limiter.ErrUnavailable)
	}
	return r.Memory.Take(ctx, claims, d)
}

// newReportedProxy makes a proxy of one of n nodes whose store hears.
func newReportedProxy(t *testing.T, n int, routes string) (*testProxy, *reportedStore) {
	t.Helper()
	h := &reportedStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), heard: map[[16]byte]int64{}}
	w := newProxy(t, routes, func(o *Options) { o.Store, o.Nodes = h, func() int { return n } })
	return w, h
}

// What the store granted to this node lately counts against its share; what was
// granted here is reported.
func TestFallback_GoesOnFromWhatTheStoreGranted(t *testing.T) {
	w, h := newReportedProxy(t, 2, limitYAML("{key: header:X-User, rate: 8/1m}"))
	w.sendsAll(times(3, 200), "GET", "/a", "X-User: alice")
	h.broken.Store(true)
	w.sendsAll([]int{200, 429, 429}, "GET", "/a", "X-User: alice") // 4 are its share
	if len(h.heard) != 1 {
		t.Errorf("the store hears of %d grants, want 1", len(h.heard))
	}
}

// A store that comes back empty knows of fewer nodes at first than there are, also when
// it decides again.
func TestFallback_SharesDoNotGrowMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 4
		h := &reportedStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), heard: map[[16]byte]int64{}}
		s := limit.NewFallback(h, func() int { return n })
		shared := func(live, want int) {
			t.Helper()
			if n = live; s.Nodes() != want {
				t.Errorf("of %d that are heard of %d nodes are shared with, want %d", live, s.Nodes(), want)
			}
		}
		shared(4, 4)
		h.absent.Store(true)
		shared(1, 4)
		shared(0, 4)
		shared(6, 6)
		shared(2, 6)
		h.absent.Store(false)
		shared(2, 6)
		time.Sleep(30*time.Second - time.Millisecond)
		shared(2, 6)
		time.Sleep(time.Millisecond)
		shared(2, 2)
		shared(1, 1)
		shared(3, 3)
	})
}

// While others may not have reported yet, the store is not asked; a limit that
// denies then has nothing to report, and asks.
func TestFallback_StoreThatWasAwayIsNotAskedAtOnce(t *testing.T) {
	w, h := newReportedProxy(t, 2, limitYAML("{key: header:X-User, rate: 8/1m}"))
	h.absent.Store(true)
	w.sendsAll([]int{200, 200, 200, 200, 429}, "GET", "/a", "X-User: alice")
	h.absent.Store(false)
	w.sends(200, "GET", "/a", "X-User: alice")

	w, h = newReportedProxy(t, 2, limitYAML("{key: header:X-User, rate: 8/1m, on_store_failure: deny}"))
	h.absent.Store(true)
	w.sends(200, "GET", "/a", "X-User: alice")
	if got := w.lines("request")[0]["fallback"]; got != nil {
		t.Errorf("fallback %v; want the store to be asked", got)
	}
}

// While other nodes may not have reported yet, the store and this node's share both
// have to let a request pass: who alone went by the store would take what others
// have granted, and who alone went by its share what others take of the store.
func TestFallback_SettlingAsksBoth(t *testing.T) {
	w, h := newReportedProxy(t, 2, limitYAML("{key: header:X-User, rate: 8/1m}"))
	h.absent.Store(true)
	w.sends(200, "GET", "/a", "X-User: alice") // by its share of 4
	h.back.Store(true)
	w.sendsAll(times(3, 200), "GET", "/a", "X-User: alice")
	w.sends(429, "GET", "/a", "X-User: alice") // the store has 5 left, the share none
	if len(h.heard) != 1 {
		t.Errorf("the store hears of %d grants, want the one that it was not asked about", len(h.heard))
	}

	w, h = newReportedProxy(t, 2, limitYAML("{key: header:X-User, rate: 8/1m}"))
	other := newProxy(t, limitYAML("{key: header:X-User, rate: 8/1m}"), func(o *Options) { o.Store = h })
	other.sendsAll(times(8, 200), "GET", "/a", "X-User: alice")
	h.absent.Store(true)
	h.back.Store(true)
	w.sendsAll(times(5, 429), "GET", "/a", "X-User: alice") // what the store refuses takes nothing of the share
	h.broken.Store(true)
	w.sendsAll([]int{200, 200, 200, 200, 429}, "GET", "/a", "X-User: alice")
}

// breakingStore is a Redis for one test, and a store that notices at once when it is gone. Nodes have that long to report after it.
func breakingStore(t *testing.T, grace time.Duration) (*redistest.Server, *redisstore.Store) {
	t.Helper()
	server := redistest.Start(t)
	c := redisstore.ClientConfig{Addrs: []string{server.Addr}, Timeout: 5 * time.Second, BreakAfter: 1, BreakRest: 50 * time.Millisecond}
	return server, redisStoreOf(t, c, redisstore.Options{Grace: grace})
}

// settlingProxies runs a test with a proxy whose store is Settling and stays so: in memory, and Redis
// after an outage. Its one route counts by X-User and answers with the status that the query names.
func settlingProxies(t *testing.T, route string, test func(w *testProxy)) {
	t.Run("memory", func(t *testing.T) {
		h := &reportedStore{Memory: limiter.NewMemory(limiter.MemoryOptions{}), heard: map[[16]byte]int64{}}
		h.absent.Store(true)
		h.back.Store(true)
		test(newProxy(t, upstreamYAML(t, answerByStatus, route), func(o *Options) { o.Store = h }))
	})
	t.Run("redis", func(t *testing.T) {
		server, store := breakingStore(t, time.Hour)
		w := newProxy(t, "store: redis\nredis: {timeout: 5s}\n"+upstreamYAML(t, answerByStatus, route), func(o *Options) { o.Store = store })
		server.Kill()
		w.until(func() bool { w.send("GET", "/a", "X-User: first"); return !store.Available() })
		server.Restart()
		w.until(store.Settling)
		test(w)
	})
}

// A client whose request failed may repeat it at once, also in the first seconds after an outage, in
// which the store and this node's share both decide: what is refunded is refunded to both.
func TestFallback_SettlingRefundsBoth(t *testing.T) {
	for name, route := range map[string]string{
		"refund_on": `refund_on: {status: [5xx]}, limits: [{key: "header:X-User", rate: 1/1h}]`,
		"count":     `limits: [{key: "header:X-User", rate: 1/1h, count: {status: [2xx]}}]`,
		"header":    `refund_on: {header: X-Refund}, limits: [{name: other, key: global, rate: 100000/1h, on_store_failure: allow}, {key: "header:X-User", rate: 1/1h}]`,
	} {
		t.Run(name, func(t *testing.T) {
			settlingProxies(t, route, func(w *testProxy) {
				refused := 0
				for i := range rounds.Of(200) {
					user := fmt.Sprint("X-User: ", i)
					for _, target := range []string{"/a?status=500&refund", "/a?status=200"} {
						if w.send("GET", target, user).Code == 429 {
							refused++
						}
					}
					if i%20 == 0 {
						w.sends(429, "GET", "/a?status=200", user) // the second was counted
					}
				}
				if refused != 0 {
					w.Errorf("%d of %d users were refused after a request that was refunded", refused, rounds.Of(200))
				}
			})
		})
	}
}

// Nor is a concurrent permit held against the share after its request.
func TestFallback_SettlingReleasesBoth(t *testing.T) {
	settlingProxies(t, `limits: [{key: "header:X-User", concurrent: 1}]`, func(w *testProxy) {
		w.sendsAll(times(10, 200), "GET", "/a?status=200", "X-User: alice")
	})
}

// The share is refunded for the limits and keys that are refunded, and not for others.
func TestSharePermit_Of(t *testing.T) {
	claim := func(limit, key string, count int64) limiter.Claim {
		return limiter.Claim{Limit: &limiter.Limit{Name: limit, Rate: limiter.Rate{Count: count, Window: time.Hour}}, Key: limiter.KeyOf(key), Cost: 1}
	}
	p := limit.SharePermit{Claims: []limiter.Claim{claim("a", "alice", 1), claim("b", "alice", 2), claim("a", "bob", 1)}}
	own := p.Of([]limiter.Claim{claim("b", "alice", 4), claim("b", "bob", 4), claim("c", "alice", 4)})
	if len(own) != 1 || own[0] != p.Claims[1] {
		t.Errorf("%v; want the share of b for alice", own)
	}
}

// What is given back while the store is away is not reported, and can be had
// here once more; what the store has heard of by then is given back there.
func TestFallback_GivesBack(t *testing.T) {
	w, h := newReportedProxy(t, 1, `routes:
  - {name: a, match: {path: /a}, respond: {status: 503}, refund_on: {status: [5xx]}, limits: [{key: "header:X-User", rate: 1/1m}]}
`)
	h.broken.Store(true)
	w.sendsAll(times(3, 503), "GET", "/a", "X-User: alice")
	if h.withdrawn != 3 || len(h.heard) != 0 {
		t.Errorf("%d reports withdrawn, %d left; want 3 and none", h.withdrawn, len(h.heard))
	}
	h.told.Store(true)
	w.sends(503, "GET", "/a", "X-User: alice")
	if got := h.refunds.Load(); got != 1 {
		t.Errorf("%d refunds of what was told, want 1", got)
	}
}

// What the store granted and got back is no longer held against the share.
func TestFallback_SeedIsGivenBack(t *testing.T) {
	w, h := newReportedProxy(t, 1, `routes:
  - {name: a, match: {path: /a}, respond: {status: 503}, refund_on: {status: [5xx]}, limits: [{key: "header:X-User", rate: 2/1m}]}
`)
	w.sendsAll(times(5, 503), "GET", "/a", "X-User: alice")
	h.broken.Store(true)
	w.sends(503, "GET", "/a", "X-User: alice")
}

// Of permits for what is under way, those of the store and those of the fallback
// are held and let go alike.
func TestFallback_Concurrent(t *testing.T) {
	w, h := newReportedProxy(t, 1, limitYAML("{key: header:X-User, concurrent: 1}"))
	for _, broken := range []bool{false, true, false} {
		h.broken.Store(broken)
		w.sendsAll(times(3, 200), "GET", "/a", "X-User: alice")
	}
	if len(h.heard) != 0 {
		t.Errorf("%d reports of permits that were let go", len(h.heard))
	}
}

// What this node granted without the store, and the store was told of before the response came, is refunded to both,
// whatever the algorithm: while the store and the share decide, and when the store decides alone again.
func TestFallback_RefundsWhatTheStoreWasTold(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window", "gcra"} {
		for _, grace := range []time.Duration{time.Hour, time.Millisecond} {
			t.Run(fmt.Sprint(algorithm, grace), func(t *testing.T) {
				server, store := breakingStore(t, grace)
				arrived, released := make(chan bool), make(chan bool)
				upstream := func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Has("late") {
						arrived <- true
						<-released
					}
					answerByStatus(w, r)
				}
				route := fmt.Sprintf(`refund_on: {status: [5xx]}, limits: [{key: "header:X-User", rate: 1/1h, algorithm: %s}]`, algorithm)
				w := newProxy(t, "store: redis\nredis: {timeout: 5s}\n"+upstreamYAML(t, upstream, route), func(o *Options) { o.Store = store })
				server.Kill()
				w.until(func() bool { w.send("GET", "/a", "X-User: first"); return !store.Available() })
				answered := make(chan int)
				go func() { answered <- w.send("GET", "/a?late&status=500", "X-User: alice").Code }()
				<-arrived
				server.Restart()
				w.until(func() bool { return grace == time.Hour && store.Settling() || store.Available() })
				released <- true
				if status := <-answered; status != 500 {
					t.Fatalf("the status is %d, want 500", status)
				}
				w.sendsAll([]int{200, 429}, "GET", "/a?status=200", "X-User: alice")
			})
		}
	}
}

// What a request that this node granted without the store has cost more is owed to the store, and by its share.
func TestFallback_ChargesWhatTheStoreWasTold(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "sliding_log", "fixed_window", "sliding_window"} {
		t.Run(algorithm, func(t *testing.T) {
			server, store := breakingStore(t, time.Millisecond)
			p := newProxy(t, "store: redis\nredis: {timeout: 5s}\nroutes:\n  - {name: own, match: {domain: edge, descriptor: {own: '*'}}, refund_on: {status: [5xx]}, limits: [{key: 'descriptor:own', rate: 20/1h, algorithm: "+algorithm+"}]}\n", func(o *Options) { o.Store = store })
			server.Kill()
			p.until(func() bool { p.asksHits(200, 1, "own", "first"); return !store.Available() })
			pending := p.asksHits(200, 10, "own", "x").Pendings[0]
			server.Restart()
			p.until(store.Available)
			if err := p.Settle(t.Context(), OutcomeReport{Pending: pending, Cost: 90, Valid: time.Minute}); err != nil {
				t.Fatal(err)
			}
			w := p.current.Load().routes[0].Windows[0]
			c := []limiter.Claim{{Limit: &w.Limit, Key: p.current.Load().config.Privacy.Hash([]string{"descriptor:own", "x"}), Cost: 1}}
			for name, in := range map[string]limiter.AdminStore{"the store": store, "the share": p.admitter.Fallback.Local} {
				if now, err := in.Inspect(t.Context(), c); err != nil || now.Statuses[0].Used != 90 {
					t.Errorf("%s: %+v, %v; want 90 used", name, now.Statuses, err)
				}
			}
		})
	}
}

// A request that reserves more than this node's share counts by it for what it has used: what comes back is of the rest.
func TestFallback_SettlesByItsShare(t *testing.T) {
	for _, settling := range []bool{false, true} {
		t.Run(fmt.Sprint(settling), func(t *testing.T) {
			up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":0,"completion_tokens":400}}`)
			})
			p, h := newReportedProxy(t, 4, tokensYAML(up, tokensLimit)) // 250 of 1000 are its share
			h.absent.Store(true)
			h.back.Store(settling)
			h.broken.Store(!settling)
			p.chat(200, "a", `{"max_tokens":900}`)
			p.chat(429, "a", `{"max_tokens":100}`)
		})
	}
}
