package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/pooltest"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestServe_Refusals(t *testing.T) {
	w := newProxy(t, `
upstreams: {demo: echo}
keys: {pair: {join: [query:user, client_ip]}}
routes:
  - {name: a, match: {path: /a, methods: [POST, PUT]}, upstream: demo, limits: [{key: pair, rate: 1/1m}]}
`)
	for _, c := range []struct {
		want                  int
		method, target, about string
	}{
		{404, "GET", "/b", ""},
		{405, "GET", "/a?user=x", ""},
		{400, "POST", "/a", "query:user"},
		{400, "POST", "/a?user=x&user=y", "query:user"},
		{400, "POST", "/a?user=x;user=y", "semicolon"},
		{400, "POST", "/a%2fb", "slash"},
		{200, "POST", "/a?user=x", ""},
		{429, "POST", "//a?user=x", ""},
		{429, "POST", "/b/../%61?user=%78", ""},
	} {
		rec := w.sends(c.want, c.method, c.target)
		if c.want == 200 {
			continue
		}
		var doc struct {
			Status int
			Detail string
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil || doc.Status != c.want || !strings.Contains(doc.Detail, c.about) {
			t.Errorf("%s %s: %s; want a problem about %q", c.method, c.target, rec.Body, c.about)
		}
		if rec.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s %s: no X-Request-Id", c.method, c.target)
		}
	}
	w.hasField(w.send("GET", "/a"), "Allow", "POST, PUT")
}

func TestRefuse_InTheOperatorsWords(t *testing.T) {
	w := newProxy(t, "routes:\n"+
		`  - {name: a, match: {path: /a}, upstream: echo, limits: [{name: l, key: global, rate: 1/1h}], reject: {status: 403, headers: {x-reason: "{limit}"}, body: '{"after":{retry_after},"id":"{request_id}"}', content_type: application/json}}`+"\n")
	w.sends(200, "GET", "/a")
	rec := w.sends(403, "GET", "/a")
	var doc struct {
		After int
		ID    string
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil || fmt.Sprint(doc.After) != rec.Header().Get("Retry-After") || doc.ID != rec.Header().Get("X-Request-Id") {
		t.Errorf("%s with %v: %v", rec.Body, rec.Header(), err)
	}
	if rec.Header().Get("X-Reason") != "l" || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("header %v", rec.Header())
	}
	if rec := w.sends(403, "HEAD", "/a"); rec.Body.Len() != 0 {
		t.Errorf("HEAD got a body: %s", rec.Body)
	}
}

func TestAdmit_WithoutStore(t *testing.T) {
	for _, c := range []struct {
		policy string
		nodes  int
		want   []int
	}{
		{"allow", 1, []int{200, 200, 200, 200, 200}},
		{"deny", 1, []int{503, 503}},
		{"local", 1, []int{200, 200, 200, 200, 429}},
		{"local", 2, []int{200, 200, 429}},
		{"local", 9, []int{200, 429}},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.policy, c.nodes), func(t *testing.T) {
			w := newProxy(t, limitYAML("{name: l, key: header:X-User, rate: 4/1m, on_store_failure: "+c.policy+"}"),
				func(o *Options) { o.Nodes = func() int { return c.nodes } })
			w.store.fail(fmt.Errorf("%w: away", limiter.ErrUnavailable))
			for _, want := range c.want {
				w.sends(want, "GET", "/a", "X-User: alice")
			}
			if got := w.lines("request")[0]; got["fallback"] != c.policy || !strings.Contains(fmt.Sprint(got["error"]), "away") {
				t.Errorf("log line %v; want fallback %s and the error", got, c.policy)
			}
			w.counted(float64(len(c.want)), w.metrics.Fallbacks.WithLabelValues(c.policy))
			w.store.err.Store(nil)
			w.sends(200, "GET", "/a", "X-User: alice")
		})
	}
}

func TestAdmit_WithoutStoreEachLimitByItsOwn(t *testing.T) {
	w := newProxy(t, limitYAML(`{name: open, key: global, rate: 1/1m, on_store_failure: allow},
		{name: own, key: header:X-User, rate: 2/1m, on_store_failure: local}`))
	w.store.fail(limiter.ErrUnavailable)
	w.sendsAll(times(2, 200), "GET", "/a", "X-User: alice")
	rec := w.sends(429, "GET", "/a", "X-User: alice")
	if body := rec.Body.String(); !strings.Contains(body, `"own"`) || strings.Contains(body, `"open"`) {
		t.Errorf("violated policies in %s; want own alone", body)
	}
	w.reloads(limitYAML("{name: open, key: global, rate: 1/1m, on_store_failure: allow}, {name: shut, key: global, rate: 1/1m, on_store_failure: deny}"))
	w.sends(503, "GET", "/a")
}

func TestAdmit_OtherErrorsAreFaultsOfOurs(t *testing.T) {
	w := newProxy(t, limitYAML("{key: global, rate: 1/1m, on_store_failure: allow}"))
	w.store.fail(errors.New("a secret"))
	if rec := w.sends(500, "GET", "/a"); strings.Contains(rec.Body.String(), "secret") {
		t.Errorf("the client reads %s; the error is for the log", rec.Body)
	}
}

func TestAdmit_ShadowRefusesNobody(t *testing.T) {
	w := newProxy(t, limitYAML("{name: watch, key: global, rates: [1/1m, 9/1h], mode: shadow}, {name: real, key: global, rate: 3/1m}, {name: not, key: global, rate: 1/1h, mode: off}"))
	for range 3 {
		rec := w.sends(200, "GET", "/a")
		w.hasField(rec, "RateLimit-Policy", `"real";q=3;w=60`)
	}
	w.sends(429, "GET", "/a")
	for result, want := range map[string]float64{"allowed": 1, "shadow_refused": 2} {
		w.counted(want, w.metrics.Decisions.WithLabelValues("a", "watch", result))
	}
}

// The proxy is its own upstream here. The inner pass is a loop and stays in this
// process, so its permit comes back; the outer pass was forwarded and counts.
func TestSettle_GivesBackWhatNeverLeft(t *testing.T) {
	var w *testProxy
	server := startUpstream(t, func(rw http.ResponseWriter, r *http.Request) { w.ServeHTTP(rw, r) })
	w = newProxy(t, "routes:\n  - {name: a, match: {path: /a}, upstream: '"+server+"', limits: [{key: global, rate: 3/1h}]}\n")
	for i, want := range []int{508, 508, 429} {
		answer, err := http.Get(server + "/a")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("request %d = %d; want %d", i+1, answer.StatusCode, want)
		}
	}
}

func TestRecord_NothingOfAKey(t *testing.T) {
	w := newProxy(t, `
upstreams: {demo: echo}
routes:
  - {name: a, match: {path: "/u/{id}/x"}, upstream: demo, limits: [{key: path:id, rate: 1/1m}, {key: header:X-Phone, rate: 1/1m}, {key: query:q, rate: 9/1m}]}
`)
	for range 2 {
		w.send("GET", "/u/13800138000/x?q=13800138000", "X-Phone: 13800138000")
	}
	lines := w.lines("request")
	if len(lines) != 2 || lines[0]["path"] != "/u/*/x" || lines[1]["limit"] == nil || len(lines[1]["key"].(string)) != keyDigits {
		t.Errorf("lines %v; want two, the path's key hidden, the refusing limit and the hash of its key", lines)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if all := w.log.String() + fmt.Sprint(families); strings.Contains(all, "13800138000") {
		t.Errorf("a key is in the log or the figures:\n%s", all)
	}
}

func TestRecord_RequestID(t *testing.T) {
	w := newProxy(t, "client_ip: {trusted_proxies: [192.0.2.1/32]}\n"+limitYAML("{key: global, rate: 9/1m}"))
	w.hasField(w.send("GET", "/a", "X-Request-Id: abc-123"), "X-Request-Id", "abc-123")
	for _, bad := range []string{"a b", "ä", strings.Repeat("a", 129)} {
		if got := w.send("GET", "/a", "X-Request-Id: "+bad).Header().Get("X-Request-Id"); got == bad || got == "" {
			t.Errorf("id %q = %q; want one of ours", bad, got)
		}
	}
	w = newProxy(t, limitYAML("{key: global, rate: 9/1m}"))
	if got := w.send("GET", "/a", "X-Request-Id: abc-123").Header().Get("X-Request-Id"); got == "abc-123" {
		t.Error("id from a stranger was kept")
	}
}

func TestKeys_ASecretChangesThem(t *testing.T) {
	hash := func(yaml string) limiter.Key {
		return newProxy(t, yaml+limitYAML("{key: global, rate: 1/1m}")).current.Load().config.Privacy.Hash([]string{"phone", "1"})
	}
	plain, one, two := hash(""), hash("privacy: {hash_secret: one-secret-long-enough-for-this}\n"), hash("privacy: {hash_secret: two-secret-long-enough-for-this}\n")
	if plain == one || one == two {
		t.Errorf("keys %s, %s, %s; want three different ones", plain, one, two)
	}
}

// function is a line of a stack that names a function of ours, with its package.
var function = regexp.MustCompile(`(?m)^github\.com/weir-proxy/weir/([\w/]+)\.`)

// stackTo is the packages of ours on the stack that comes through the proxy and ends in this
// one, outermost first, each as often as it is entered; nil if there is no such stack. Stacks
// of goroutines that the store itself started, such as its connections', are not looked at.
func stackTo(pkg string) (entered []string) {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		stack, _, _ = strings.Cut(stack, "\ncreated by ")
		var calls []string // innermost first
		for _, f := range function.FindAllStringSubmatch(stack, -1) {
			calls = append(calls, f[1])
		}
		if len(calls) > 0 && calls[0] == pkg && slices.Contains(calls, "proxy") {
			slices.Reverse(calls)
			return slices.Compact(calls)
		}
	}
	return nil
}

// startWalked starts a proxy that asks Redis about each request, through faults.
func (over transport) startWalked(t *testing.T) (f *testServer, faults *redistest.FaultProxy) {
	t.Helper()
	faults = redistest.NewFaultProxy(t, redistest.Start(t).Addr)
	return over.opened(t, `
keys: {phone: {from: "header:X-Phone", normalize: e164}}
routes: [{name: sms, match: {path: /sms}, upstream: echo, limits: [{name: phone, key: phone, rate: 5/1h}]}]
`, func(o *Options) { o.Store = redisStore(t, faults.Addr) }), faults
}

// A request goes from the client's connection to Redis by entering each package once, and
// the answer returns the same way: whoever follows a key through the code goes one way.
func TestServe_ARequestEntersEachPackageOnce(t *testing.T) {
	enters := func(t *testing.T, faults *redistest.FaultProxy, send func() (status int), want ...string) {
		t.Helper()
		if status := send(); status != 200 { // all that begins with the first request has begun then
			t.Fatalf("status %d", status)
		}
		faults.Hold()
		answered := make(chan int, 1)
		go func() { answered <- send() }()
		var got []string
		await.Until(t, "a request waits for Redis", func() bool { got = stackTo("limiter/redisstore"); return got != nil })
		faults.Release()
		if status := await.Value(t, answered, "an answer"); status != 200 || !slices.Equal(got, want) {
			t.Errorf("a request enters %q and is answered %d; want %q", got, status, want)
		}
	}
	overEachTransport(t, func(t *testing.T, over transport) {
		f, faults := over.startWalked(t)
		enters(t, faults, func() int {
			w := f.dial("POST /sms HTTP/1.1\r\nHost: a\r\nX-Phone: +8613800138000\r\nContent-Length: 0\r\n\r\n")
			answer, _ := w.ReadResponse("POST")
			return answer.StatusCode
		}, "proxy/frontend", "proxy/http1", "proxy", "proxy/limit", "limiter/redisstore")
	})
	t.Run("http2", func(t *testing.T) {
		f, faults := transport(plainTransport).startWalked(t)
		_, client := f.listenTLSClient()
		enters(t, faults, func() int {
			r, _ := http.NewRequest("POST", "https://example.com/sms", nil)
			r.Header.Set("X-Phone", "+8613800138000")
			answer, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return 0
			}
			defer answer.Body.Close()
			return answer.StatusCode
		}, "proxy/frontend", "proxy/http2", "proxy", "proxy/limit", "limiter/redisstore")
	})
}

// An exchange that is used again tells nothing of the request before: what it keeps is memory.
func TestExchange_ResetForgetsTheRequest(t *testing.T) {
	x := newExchange().(*exchange)
	pooltest.Fill(t, x, noFields{}, x, new(http1Downstream), new(http1.Duplex), &reportedStore{})
	x.reset()
	pooltest.Empty(t, x, "exchange.reused", "exchange.unusedIDs", "exchange.forwarded.edit", "exchange.request.tree",
		"exchange.extracted.value.network", "exchange.extracted.value.address", "exchange.extracted.value.json", "exchange.extracted.extraction.memos", "exchange.forwarded.request.forwarding")
}

// A downstream that is used again keeps its exchange alone.
func TestDownstream_ReleaseForgetsTheRequest(t *testing.T) {
	budget := body.NewBudget(1 << 20)
	one := new(http1Downstream)
	pooltest.Fill(t, one)
	one.buffer, one.h = body.Buffer{Budget: budget, Client: netip.Prefix{}}, new(http1.Exchange)
	one.reqCtx = http1.Context{Exchange: one.h}
	one.release()
	pooltest.Empty(t, one, "http1Downstream.reusable.x")

	two := new(http2Downstream)
	pooltest.Fill(t, two, new(http2.Stream))
	two.buffer = body.Buffer{Budget: budget}
	two.release()
	pooltest.Empty(t, two, "http2Downstream.reusable.x")
}
