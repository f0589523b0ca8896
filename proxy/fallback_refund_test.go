package proxy

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

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
				w.sends(200, "GET", "/a?status=200", "X-User: alice")
				w.sends(429, "GET", "/a?status=200", "X-User: alice")
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
