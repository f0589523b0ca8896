package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/view"
)

// decideYAML has routes that other proxies ask about. The upstream is never asked.
const decideYAML = `
keys: {phone: header:X-Phone}
upstreams: {demo: echo}
routes:
  - {name: send, match: {path: /send}, upstream: demo, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h}]}
  - {name: start, match: {path: /start}, upstream: demo, limits: [{name: backoff, key: phone, cooldown: [1h], reset_on: {route: verify, status: [2xx]}}]}
  - {name: code, match: {path: /code}, upstream: demo, limits: [{name: unused, key: client_ip, rate: 1/1h, return_on: {route: verify, status: [2xx], key: phone}}]}
  - {name: verify, match: {path: /verify}, upstream: demo, limits: [{name: attempts, key: phone, rate: 9/1h}]}
  - {name: busy, match: {path: /busy}, upstream: demo, limits: [{name: busy, key: client_ip, concurrent: 1}]}
  - {name: body, match: {path: /body}, upstream: demo, body: {max: 1KiB}, limits: [{name: json, key: "json:/phone", rate: 1/1h}]}
`

// asked is what a test keeps of an Answer.
type asked struct {
	allowed bool
	status  int
	fields  map[string]string
	body    string
	pending []byte
}

// asks asks about a request with "Name: value" lines from 192.0.2.1, due in a minute.
func (p *testProxy) asks(path string, change func(*Question), lines ...string) (got asked) {
	p.Helper()
	q := &Question{
		Listener: "decide/test", Deadline: time.Now().Add(time.Minute), Hold: time.Minute,
		Method: "POST", Scheme: "https", Host: "api.example.com", Target: path, Fields: new(http1.Fields), Client: netip.MustParseAddr("192.0.2.1"),
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		q.Fields.Add(name, value)
	}
	if change != nil {
		change(q)
	}
	p.Decide(p.Context(), q, func(a *Answer) bool {
		got = asked{a.Allowed, a.Response.Status, map[string]string{}, string(a.Response.Body), append([]byte(nil), a.Pending...)}
		for _, f := range a.Response.Fields {
			got.fields[http.CanonicalHeaderKey(f.Name)] = f.Value
		}
		return true
	})
	return got
}

// asksFor asks as asks does and wants this status.
func (p *testProxy) asksFor(status int, path string, lines ...string) asked {
	p.Helper()
	got := p.asks(path, nil, lines...)
	if got.status != status || got.allowed != (status == 200) {
		p.Errorf("%s %v: allowed %v, %d; want %d\n%s", path, lines, got.allowed, got.status, status, got.body)
	}
	return got
}

// reports reports an outcome and wants this error.
func (p *testProxy) reports(pending []byte, status int, want error) {
	p.Helper()
	if err := p.Settle(p.Context(), OutcomeReport{Pending: pending, Status: status, Valid: time.Minute}); !errors.Is(err, want) {
		p.Errorf("status %d reported: %v; want %v", status, err, want)
	}
}

func TestDecide_AnswersAsTheProxyWould(t *testing.T) {
	p := newProxy(t, decideYAML)
	got := p.asksFor(200, "/send?type=sms", "X-Phone: +8613800138000")
	if got.fields["Ratelimit"] == "" || got.fields["Ratelimit-Policy"] == "" || got.body != "" {
		t.Errorf("allowed with %v and %q; want the rate limit fields alone", got.fields, got.body)
	}
	p.asksFor(200, "/send", "X-Phone: +8613800138000")
	got = p.asksFor(429, "/send", "X-Phone: +8613800138000")
	if got.fields["Retry-After"] == "" || got.fields["Content-Type"] != "application/problem+json" || got.pending != nil {
		t.Errorf("refused with %v and %d bytes for an outcome", got.fields, len(got.pending))
	}
	p.sends(429, "POST", "/send", "X-Phone: +8613800138000") // one count for both
	p.asksFor(400, "/send")
	p.asksFor(404, "/nowhere")
	p.asksFor(400, "/se nd", "X-Phone: 1")
	p.asksFor(400, "/send#top", "X-Phone: 1")
}

// A route that redirects, or responds with an error, lets nothing pass: the client gets that response, whose status
// decides about permits, as it does without another proxy.
func TestDecide_RoutesThatKeepRequests(t *testing.T) {
	p := newProxy(t, `
routes:
  - {name: closed, match: {path: /closed}, respond: {status: 403, body: closed}, limits: [{name: r, key: client_ip, rate: 2/1h, count: {status: [2xx]}}, {name: busy, key: client_ip, concurrent: 1}]}
  - {name: moved, match: {path: /moved}, redirect: {to: "https://example.com{path}", status: 308}}
  - {name: page, match: {path: /page}, respond: {status: 200, body: page}}
`)
	for range 3 {
		if got := p.asksFor(403, "/closed"); got.body != "closed" || got.fields["Ratelimit"] == "" || got.pending != nil {
			t.Errorf("%q with %v and %d bytes for an outcome; want what the proxy would answer", got.body, got.fields, len(got.pending))
		}
	}
	if got := p.asksFor(308, "/moved"); got.fields["Location"] != "https://example.com/moved" {
		t.Errorf("redirected with %v", got.fields)
	}
	p.asksFor(200, "/page")
	p.send("GET", "/closed")
	all := p.Decisions(view.DecisionQuery{N: 10, Route: "closed"})
	for _, d := range all {
		if d.Outcome != all[0].Outcome {
			t.Errorf("%q is recorded as %s; want %s, as without another proxy", d.Listener, d.Outcome, all[0].Outcome)
		}
	}
	if counts := p.Counts(); counts[Series{Route: "closed", Result: "allowed"}] != 4 {
		t.Errorf("counts are %v; want 4 allowed", counts)
	}
}

func TestDecide_IsRecordedWithItsListener(t *testing.T) {
	p := newProxy(t, decideYAML)
	for _, status := range []int{200, 200, 429} {
		p.asksFor(status, "/send", "X-Phone: 1")
	}
	lines := p.lines("request")
	if len(lines) != 3 || lines[0]["listener"] != "decide/test" || lines[0]["status"] != 200.0 || lines[2]["status"] != 429.0 || lines[2]["limit"] != "phone" || lines[0]["client"] == nil {
		t.Errorf("log has %v; want a line for each decision, with its listener", lines)
	}
	all := p.Decisions(view.DecisionQuery{N: 10})
	if n := len(all); n < 2 || all[0].Listener != "decide/test" || all[0].Outcome != "refused" || all[n-1].Outcome != "allowed" { // of the allowed ones a sample
		t.Errorf("decisions are %+v", all)
	}
	top := p.Top(view.TopQuery{})
	if len(top.Limits) == 0 || top.Limits[0].Requests.Total != 3 || top.Limits[0].Refused.Total != 1 {
		t.Errorf("top is %+v; want 3 requests of which 1 was refused", top)
	}
	counts := p.Counts()
	if counts[Series{Route: "send", Result: "allowed"}] != 2 || counts[Series{Route: "send", Result: "refused"}] != 1 || counts[Series{"send", "phone", "refused"}] != 1 {
		t.Errorf("counts are %v; want each decision once", counts)
	}
}

// A route to which no upstream belongs is explained as the proxy that asks is answered; whoever sends a
// request there gets 404, and it does not count.
func TestDecide_RouteWithoutUpstream(t *testing.T) {
	const route = "routes:\n  - {name: a, match: {path: /a}, limits: [{key: client_ip, rate: 1/1h}]}\n"
	p := newProxy(t, "listen: {http: none, decide: {http: '127.0.0.1:8082', dialect: nginx}}\n"+route)
	if e := p.explains("GET", "http://a.example/a"); e.Answer == nil || e.Answer.Status != 200 || e.Answer.Header["Ratelimit"] == nil {
		t.Errorf("explained as %+v", e.Answer)
	}
	p.sends(404, "GET", "/a")
	p.asksFor(200, "/a")
	p.asksFor(429, "/a")
}

func TestSettleOutcome_RefundsOnce(t *testing.T) {
	p := newProxy(t, decideYAML)
	kept := p.asksFor(200, "/send", "X-Phone: 1")
	failed := p.asksFor(200, "/send", "X-Phone: 1")
	p.asksFor(429, "/send", "X-Phone: 1")
	p.reports(kept.pending, 200, nil)
	p.asksFor(429, "/send", "X-Phone: 1")
	p.reports(failed.pending, 503, nil)
	p.asksFor(200, "/send", "X-Phone: 1")
	p.reports(failed.pending, 503, ErrSettled)
	p.reports(kept.pending, 503, ErrSettled)
	p.asksFor(429, "/send", "X-Phone: 1")
	for end := range failed.pending {
		p.reports(failed.pending[:end], 503, ErrNotPending)
	}
}

func TestSettleOutcome_OnAnyNode(t *testing.T) {
	a, b := twoOver(t, decideYAML, func(*Options) {})
	taken := a.asksFor(200, "/send", "X-Phone: 1")
	a.asksFor(200, "/send", "X-Phone: 1")
	b.asksFor(429, "/send", "X-Phone: 1")
	b.reports(taken.pending, 500, nil)
	a.reports(taken.pending, 500, ErrSettled)
	b.asksFor(200, "/send", "X-Phone: 1")
	a.asksFor(429, "/send", "X-Phone: 1")
}

func TestSettleOutcome_ResetsAndReturns(t *testing.T) {
	p := newProxy(t, decideYAML)
	for _, path := range []string{"/start", "/code"} {
		p.asksFor(200, path, "X-Phone: 1")
		p.asksFor(429, path, "X-Phone: 1")
	}
	verified := p.asks("/verify", nil, "X-Phone: 1")
	p.reports(verified.pending, 403, nil)
	p.asksFor(429, "/start", "X-Phone: 1")
	p.reports(p.asks("/verify", nil, "X-Phone: 1").pending, 200, nil)
	p.asksFor(200, "/start", "X-Phone: 1")
	p.asksFor(200, "/code", "X-Phone: 1")
}

// Requests that have taken no permit are told apart too: each has an outcome of its own.
func TestSettleOutcome_OfRequestsWithoutPermits(t *testing.T) {
	p := newProxy(t, strings.Replace(decideYAML, "rate: 9/1h", "rate: 1/1h, mode: shadow", 1))
	p.asksFor(200, "/start", "X-Phone: 1")
	for _, status := range []int{403, 403, 403, 200} { // of codes that were typed
		p.reports(p.asksFor(200, "/verify", "X-Phone: 1").pending, status, nil)
	}
	p.asksFor(200, "/start", "X-Phone: 1")
}

func TestSettleOutcome_ReleasesConcurrentPermits(t *testing.T) {
	p := newProxy(t, decideYAML)
	held := p.asksFor(200, "/busy")
	p.asksFor(429, "/busy")
	p.reports(held.pending, 200, nil)
	p.asksFor(200, "/busy")
}

func TestDecide_ReadsKeysFromTheBodyThatThePeerSends(t *testing.T) {
	p := newProxy(t, decideYAML)
	send := func(body string, length int64) asked {
		return p.asks("/body", func(q *Question) { q.Body, q.Length = strings.NewReader(body), length }, "Content-Type: application/json")
	}
	const one = `{"phone": "1"}`
	for i, want := range []struct {
		body   string
		length int64
		status int
	}{{one, int64(len(one)), 200}, {one, -1, 429}, {`{"phone": "2"}`, -1, 200}, {strings.Repeat(" ", 2048), -1, 413}} {
		if got := send(want.body, want.length); got.status != want.status {
			t.Errorf("%d: %d; want %d\n%s", i, got.status, want.status, got.body)
		}
	}
	p.asksFor(400, "/body", "Content-Type: application/json") // a peer that keeps the body
}

// A gatedStore is a memory store whose decisions wait until they may be made, and tell when they have been.
type gatedStore struct {
	*limiter.Memory
	gate, refunds chan bool
}

func (g *gatedStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	<-g.gate
	return g.Memory.Take(ctx, claims, d)
}

func (g *gatedStore) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	defer func() { g.refunds <- true }()
	return g.Memory.StartRefund(claims, p)
}

func TestDecide_LateDecisionIsRefundedAndDecidedWithoutTheStore(t *testing.T) {
	for policy, status := range map[string]int{"allow": 200, "deny": 503, "local": 200} {
		store := &gatedStore{limiter.NewMemory(limiter.MemoryOptions{}), make(chan bool), make(chan bool, 1)}
		p := newProxy(t, "store: redis\nredis: {addrs: [127.0.0.1:1], timeout: 1m}\ndefaults: {on_store_failure: "+policy+"}\n"+decideYAML, func(o *Options) { o.Store = store })
		late := func(q *Question) { q.Deadline = time.Now() }
		if got := p.asks("/send", late, "X-Phone: 1"); got.status != status {
			t.Errorf("%s: late decision answered with %d; want %d", policy, got.status, status)
		}
		store.gate <- true
		<-store.refunds
		close(store.gate)
		p.asksFor(200, "/send", "X-Phone: 1")
		p.asksFor(200, "/send", "X-Phone: 1")
		p.asksFor(429, "/send", "X-Phone: 1")
	}
}

// What a peer reports is checked by its MAC before; a mistake there must not end the process.
func FuzzPending(f *testing.F) {
	f.Add([]byte{1, 0, 4, 's', 'e', 'n', 'd', 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newProxy(t, decideYAML)
		x := newExchange().(*exchange)
		x.generation, x.Admitter = p.current.Load(), p.admitter
		x.restorePending(b, "")
	})
}

// What was taken for a peer that has not waited for the answer comes back, whatever the method: nobody serves the request.
// It is logged as one whose client has left.
func TestDecide_UnreceivedAnswerIsRefunded(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, `
routes:
  - {name: counted, match: {path: /counted}, respond: {body: a}, limits: [{key: client_ip, rate: 1/1h}]}
  - {name: running, match: {path: /running}, respond: {body: a}, limits: [{key: client_ip, concurrent: 1}]}
`, use)
		for _, path := range []string{"/counted", "/running"} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
				p.Decide(p.Context(), &Question{
					Listener: "decide/test", Deadline: time.Now().Add(time.Minute), Hold: time.Hour,
					Method: method, Scheme: "https", Host: "api.example.com", Target: path, Fields: new(http1.Fields), Client: netip.MustParseAddr("192.0.2.1"),
				}, func(a *Answer) bool {
					if !a.Allowed {
						t.Errorf("%s %s: %d", method, path, a.Response.Status)
					}
					return false
				})
			}
			p.asksFor(200, path)
			p.asksFor(429, path)
		}
		gone := 0
		for _, line := range p.lines("request") {
			if line["status"] == 499.0 {
				gone++
			}
		}
		if gone != 6 {
			t.Errorf("%d lines have the status 499; want 6", gone)
		}
	})
}

// Of a request that is refunded nothing, such as HEAD, the outcome releases what is concurrent, and nothing else.
func TestDecide_OutcomeOfHeadReleases(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		p := newProxy(t, decideYAML+"  - {name: both, match: {path: /both}, upstream: demo, refund_on: {status: [5xx]}, limits: [{name: rate, key: phone, rate: 2/1h}, {name: busy, key: client_ip, concurrent: 1}]}\n", use)
		head := func(path string) asked {
			return p.asks(path, func(q *Question) { q.Method = "HEAD" }, "X-Phone: 1")
		}
		for _, want := range []int{200, 200, 429} {
			got := head("/both")
			if got.status != want || (got.pending != nil) != got.allowed {
				t.Errorf("HEAD: %d, with a handle: %t; want %d, and one if it is allowed", got.status, got.pending != nil, want)
			}
			if got.allowed {
				p.reports(got.pending, 503, nil)
			}
		}
		for _, path := range []string{"/send", "/verify", "/start", "/code"} {
			if got := head(path); !got.allowed || got.pending != nil {
				t.Errorf("HEAD %s: %d, with a handle: %t; want none", path, got.status, got.pending != nil)
			}
		}
	})
}

// A proxy that keeps the body of a request does not tell whether it is that of an earlier one.
func TestDecide_RepeatsWithoutBodyCount(t *testing.T) {
	p := newProxy(t, "routes: [{name: a, match: {path: /a}, upstream: demo, idempotency: {repeats: 3}, limits: [{name: l, key: client_ip, rate: 2/1h}]}]\nupstreams: {demo: echo}")
	for i, want := range []int{200, 200, 429} {
		if got := p.asks("/a", func(q *Question) { q.Length = -1 }, "Idempotency-Key: one"); got.status != want {
			t.Errorf("request %d with an unknown body: %d; want %d", i+1, got.status, want)
		}
	}
	known := func(q *Question) { q.Method, q.Client = "PUT", netip.MustParseAddr("192.0.2.2") }
	for i := range 4 {
		if got := p.asks("/a", known, "Idempotency-Key: two"); got.status != 200 {
			t.Errorf("request %d without a body: %d; want that it repeats", i+1, got.status)
		}
	}
}
