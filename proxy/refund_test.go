package proxy

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// overEachStore runs a test against counts in memory and in a real Redis.
func overEachStore(t *testing.T, test func(t *testing.T, use func(*Options))) {
	t.Run("memory", func(t *testing.T) { test(t, func(*Options) {}) })
	t.Run("redis", func(t *testing.T) {
		store := redisStore(t, redistest.Start(t).Addr)
		test(t, func(o *Options) { o.Store = store })
	})
}

// twoOver are two proxies over one store.
func twoOver(t *testing.T, yaml string, use func(*Options)) (one, other *testProxy) {
	t.Helper()
	one = newProxy(t, yaml, use)
	return one, newProxy(t, yaml, func(o *Options) { o.Store = one.admitter.SharedStore() })
}

// redisStore is a store in the Redis at addr.
func redisStore(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	return redisStoreOf(t, redisstore.ClientConfig{Addrs: []string{addr}}, redisstore.Options{})
}

// redisStoreOf is a store by c and o, with the time that a busy machine takes unless c says otherwise.
func redisStoreOf(t *testing.T, c redisstore.ClientConfig, o redisstore.Options) *redisstore.Store {
	t.Helper()
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	client, err := redisstore.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	o.Timeout = c.Timeout
	store := redisstore.New(client, o)
	t.Cleanup(func() { store.Close() })
	return store
}

// upstreamYAML is a file with one route whose upstream is h, and more of the route.
func upstreamYAML(t *testing.T, h http.HandlerFunc, route string) string {
	return "routes:\n  - {name: a, match: {path: /a}, upstream: '" + startUpstream(t, h) + "', " + route + "}\n"
}

// answerByStatus is an upstream that answers with the status that the query names.
func answerByStatus(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	fmt.Sscan(r.URL.Query().Get("status"), &status)
	if r.URL.Query().Has("refund") {
		w.Header().Set("X-Refund", "yes")
	}
	w.WriteHeader(status)
}

// left is what limit l of route a says it has left, after a request that is
// given back itself.
func (p *testProxy) left(limit string) string {
	p.Helper()
	rec := p.send("GET", "/a?status=503")
	for policy := range strings.SplitSeq(rec.Header().Get("RateLimit"), ", ") {
		if rest, ok := strings.CutPrefix(policy, `"`+limit+`";r=`); ok {
			left, _, _ := strings.Cut(rest, ";")
			return left
		}
	}
	p.Fatalf("no %s in %v", limit, rec.Header())
	return ""
}

func TestSettle_RefundOn(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, `refund_on: {status: [5xx, 404], header: x-refund}, limits: [{name: l, key: global, rates: [3/1h, 9/1d]}]`), use)
		for _, c := range []struct {
			query string
			left  string // of 3; the question itself is given back, and its header knows that
		}{
			{"status=500", "3"},
			{"status=599", "3"},
			{"status=404", "3"},
			{"status=200&refund", "3"},
			{"status=403", "2"},
			{"status=200", "1"},
		} {
			rec := w.send("GET", "/a?"+c.query)
			if got := w.left("l-1h"); got != c.left {
				t.Errorf("after %s %s are left; want %s", c.query, got, c.left)
			}
			w.hasField(rec, "X-Refund", "")
		}
		w.counted(10, w.metrics.Refunds.WithLabelValues("a", "l"))
	})
}

// Many servers answer OPTIONS, HEAD and TRACE by themselves. What they answer says nothing of the
// request whose key it carries, and gives nothing back.
func TestSettle_NothingForAnswersThatServersMake(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		for _, method := range []string{"OPTIONS", "HEAD", "TRACE", "head"} {
			for _, how := range []string{`refund_on: {status: [2xx], header: x-refund}, limits: [{key: global, rate: 1/1h}]`, `limits: [{key: global, rate: 1/1h, count: {status: [4xx]}}]`} {
				w := newProxy(t, upstreamYAML(t, answerByStatus, how), use, func(o *Options) { o.Config.Routes[0].Limits[0].ID = method + how[:6] })
				w.sends(200, "GET", "/a")
				rec := w.sends(200, method, "/a?refund")
				if got := rec.Header().Get("RateLimit"); !strings.Contains(got, ";r=0") {
					t.Errorf("%s says %s; want nothing left", method, got)
				}
				w.sends(429, "GET", "/a")
			}
		}
	})
}

// A permit that was given back is there once more, not twice: of two permits in
// use one comes back, and one more request passes.
func TestSettle_ExactlyOnce(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, upstreamYAML(t, answerByStatus, `refund_on: {status: [5xx]}, limits: [{key: global, rate: 2/1h}]`), use)
		w.sends(200, "GET", "/a")
		w.sendsAll(times(5, 502), "GET", "/a?status=502")
		w.sendsAll([]int{200, 429}, "GET", "/a")
	})
}

// Of 100 wrong codes at once at most 5 reach the upstream, though each right
// one is given back.
func TestSettle_CountHoldsAgainstACrowd(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		var reached atomic.Int64
		guess := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("code") == "right" {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			reached.Add(1)
			w.WriteHeader(http.StatusForbidden)
		}
		w := newProxy(t, upstreamYAML(t, guess, `limits: [{name: guesses, key: header:X-Phone, rate: 5/10m, count: {status: [4xx]}}, {name: all, key: global, rate: 1000/1h}]`), use)
		w.sendsAll(times(20, 204), "GET", "/a?code=right", "X-Phone: 1")
		atOnce(100, func(i int) bool { return w.send("GET", fmt.Sprintf("/a?code=%d", i), "X-Phone: 1").Code == 403 })
		if reached.Load() != 5 {
			t.Errorf("%d wrong codes reached the upstream; want 5", reached.Load())
		}
		w.sends(429, "GET", "/a?code=right", "X-Phone: 1")
		rec := w.sends(204, "GET", "/a?code=right", "X-Phone: 2")
		if got := rec.Header().Get("RateLimit"); !strings.Contains(got, `"all";r=974`) {
			t.Errorf("RateLimit = %s; want all to have counted 20 + 5 + 1", got)
		}
	})
}

// slowHandler is an upstream that answers nothing until it is let go, and tells when it
// was asked. With a query of "begin" it answers half a 500 instead.
func slowHandler(asked chan<- struct{}, let <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "begin" {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
		} else {
			asked <- struct{}{}
		}
		select {
		case <-let:
		case <-r.Context().Done():
		}
	}
}

// A client that leaves before the upstream has answered stays counted, since
// the upstream may have done what was asked. Once the status is known it
// decides, whoever leaves.
func TestSettle_ClientLeaves(t *testing.T) {
	for query, want := range map[string]int64{"": 0, "begin": 1} {
		t.Run("query "+query, func(t *testing.T) {
			came, let := make(chan struct{}, 1), make(chan struct{})
			defer close(let)
			f := startServer(t, upstreamYAML(t, slowHandler(came, let), `refund_on: {status: [5xx]}, limits: [{name: l, key: global, rate: 1/1h}]`))
			c := f.dial("GET /a?" + query + " HTTP/1.1\r\nHost: a\r\n\r\n")
			if query == "" {
				<-came
			} else {
				if line, err := c.Reader.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 500 ") {
					t.Fatalf("%q, %v; want the begin of a 500", line, err)
				}
			}
			reset(c)
			f.until(func() bool { return len(f.lines("request")) == 1 })
			if got := f.remainingOf("a.l:1h", 1, "global", ""); got != want {
				t.Errorf("%d left; want %d", got, want)
			}
		})
	}
}

// remainingOf is what the store has left of so many an hour.
func (p *testProxy) remainingOf(name string, count int64, parts ...string) int64 {
	p.Helper()
	l := &limiter.Limit{Name: name, Rate: limiter.Rate{Count: count, Window: time.Hour}}
	return p.peeks(p.store, limiter.Claim{Limit: l, Key: p.current.Load().config.Privacy.Hash(parts), Cost: 1})
}

// peeks is what s has left for a claim.
func (p *testProxy) peeks(s limiter.Store, c limiter.Claim) int64 {
	p.Helper()
	var d limiter.Decision
	if err := s.Peek(p.Context(), []limiter.Claim{c}, &d); err != nil {
		p.Fatal(err)
	}
	return d.Outcomes[0].Remaining
}

// A request that is cut off because the proxy must end has given back what it
// took by the time that Close returns.
func TestSettle_WhileDraining(t *testing.T) {
	began, let := make(chan struct{}), make(chan struct{})
	defer close(let)
	w := newProxy(t, upstreamYAML(t, slowHandler(nil, let), `refund_on: {status: [5xx]}, limits: [{name: l, key: global, rate: 1/1h}]`))
	s := frontend.NewServer(w.Proxy, w.current.Load().config.Listen, w.Proxy.log)
	var served sync.WaitGroup
	addr := sockettest.Serve(t, &served, s.Serve)
	served.Go(func() {
		answer, err := http.Get("http://" + addr + "/a?begin")
		if err != nil {
			t.Error(err)
		}
		close(began)
		if err == nil {
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	})
	<-began
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(now); err == nil {
		t.Error("Drain cut nobody off")
	}
	w.Proxy.Close()
	if got := w.remainingOf("a.l:1h", 1, "global", ""); got != 1 {
		t.Errorf("%d left; want the one that was given back", got)
	}
	served.Wait()
}

func TestSettle_ShadowIsSettledToo(t *testing.T) {
	w := newProxy(t, upstreamYAML(t, answerByStatus, `refund_on: {status: [5xx]}, limits: [{name: l, key: global, rate: 1/1h, mode: shadow}, {name: only, key: global, rate: 1/1h, mode: shadow, count: {status: 4xx}}]`))
	w.sends(500, "GET", "/a?status=500")
	for _, name := range []string{"a.l:1h", "a.only:1h"} {
		if got := w.remainingOf(name, 1, "global", ""); got != 1 {
			t.Errorf("%s: %d left after a 500; want 1", name, got)
		}
	}
	w.sends(200, "GET", "/a")
	if all, only := w.remainingOf("a.l:1h", 1, "global", ""), w.remainingOf("a.only:1h", 1, "global", ""); all != 0 || only != 1 {
		t.Errorf("after a 200 %d and %d left; want 0 and 1", all, only)
	}
}

func TestSettle_SaysSoInTheLog(t *testing.T) {
	w := newProxy(t, upstreamYAML(t, answerByStatus, `refund_on: {status: [5xx]}, limits: [{key: global, rate: 1/1h}]`))
	w.sends(500, "GET", "/a?status=500")
	w.sends(200, "GET", "/a")
	lines := w.lines("request")
	if lines[0]["refunded"] != true || lines[1]["refunded"] != nil {
		t.Errorf("lines %v; want refunded in the first alone", lines)
	}
}

// The header of an answer that gives its permit back says that the permit is there.
func TestSettle_TheHeaderKnowsOfTheRefund(t *testing.T) {
	w := newProxy(t, upstreamYAML(t, answerByStatus, `refund_on: {status: [503], header: X-Refund}, limits: [{name: l, key: global, rate: 2/1h}, {name: bad, key: global, rate: 3/1h, count: {status: [4xx]}}]`))
	for _, c := range []struct{ query, want string }{
		{"status=503", `"l";r=2, "bad";r=3`},
		{"status=200&refund", `"l";r=2, "bad";r=3`},
		{"status=200", `"l";r=1, "bad";r=3`},
		{"status=404", `"l";r=0;t=3600, "bad";r=2`},
	} {
		rec := w.send("GET", "/a?"+c.query)
		w.hasField(rec, "RateLimit", c.want)
	}
	w = newProxy(t, "routes:\n  - {name: a, match: {path: /a}, respond: {status: 503}, refund_on: {status: [5xx]}, limits: [{name: l, key: global, rate: 2/1h}]}\n")
	w.hasField(w.send("GET", "/a"), "RateLimit", `"l";r=2`)
}

// startFaulty are upstreams that fail each in their own way.
func startFaulty(t *testing.T, fault string) string {
	if fault == "connect" {
		return sockettest.ClosedAddr(t)
	}
	return sockettest.Upstream(t, func(c net.Conn, _ *bufio.Reader) {
		c.Read(make([]byte, 4096))
		switch fault {
		case "bad_response":
			fmt.Fprint(c, "nonsense\r\n\r\n")
		case "cut":
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		case "timeout":
			c.Read(make([]byte, 1)) // until the other side has had enough
		}
	})
}

// Each fault gives back where it is named, and nowhere else. What is counted
// only after some statuses stays counted when nobody knows the status, but for
// a target that was never reached.
func TestSettle_Faults(t *testing.T) {
	known := map[string]int64{"connect": 2, "cut": 2, "timeout": 1, "reset": 1, "bad_response": 1}
	for fault, uncounted := range known {
		t.Run(fault, func(t *testing.T) {
			addr := startFaulty(t, fault)
			for on, want := range map[string]int64{fault: 2, "": 1, "others": 1} {
				errs := on
				if on == "others" {
					errs = "timeout, connect, reset, cut, bad_response"
					errs = strings.Replace(errs, fault, map[bool]string{true: "reset", false: "timeout"}[fault == "timeout"], 1)
				}
				yaml := "upstreams: {bad: {targets: ['http://" + addr + "'], timeouts: {response: 50ms}}}\nroutes:\n" +
					"  - {name: a, match: {path: /a}, upstream: bad, refund_on: {errors: [" + errs + "]}, limits: [{name: l, key: client_ip, rate: 2/1h}]}\n" +
					"  - {name: c, match: {path: /c}, upstream: bad, limits: [{name: l, key: client_ip, rate: 2/1h, count: {status: 4xx}}]}\n"
				w := newProxy(t, yaml)
				if got := w.leftAfter("/a", "a.l:1h"); got != want {
					t.Errorf("after %s, refunded on %q, %d of 2 are left; want %d", fault, on, got, want)
				}
				if got := w.leftAfter("/c", "c.l:1h"); got != uncounted {
					t.Errorf("after %s, counted on 4xx, %d of 2 are left; want %d", fault, got, uncounted)
				}
			}
		})
	}
}

// leftAfter is what the store says is left of 2 under the client's address,
// after a request.
func (p *testProxy) leftAfter(path, name string) int64 {
	p.Helper()
	func() {
		defer func() { recover() }() // how a downstream cuts a connection
		p.send("GET", path)
	}()
	return p.remainingOf(name, 2, "client_ip", "192.0.2.1")
}
