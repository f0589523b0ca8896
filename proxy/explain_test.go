package proxy

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/redistest"
)

// explains asks about a request with header lines and perhaps a body, as send does.
func (p *testProxy) explains(method, url string, lines ...string) view.Explanation {
	p.Helper()
	if url[0] == '/' {
		url = "http://example.com" + url // as send
	}
	r := view.ExplainRequest{Method: method, URL: url, Header: map[string][]string{}, Client: netip.MustParseAddr("192.0.2.1")}
	for _, line := range lines {
		name, value, isField := strings.Cut(line, ": ")
		if line[0] == '{' || !isField {
			r.Body = line
			continue
		}
		r.Header[name] = append(r.Header[name], value)
	}
	e, err := p.Explain(p.Context(), r)
	if err != nil {
		p.Fatalf("explain %s %s: %v", method, url, err)
	}
	return e
}

// explained is a file with all that a request can meet.
const explained = `
privacy: {hash_secret: 0123456789abcdef}
keys:
  phone: {from: header:X-Phone, normalize: {as: e164, default_region: CN}, sensitive: true, set_header: X-Phone-E164}
  number: {from: json:/phone, normalize: {as: e164, default_region: CN}, sensitive: true}
  user: {from: query:user, on_missing: skip}
lists:
  stolen: {key: phone, values: ["+86 138 0013 8009"], action: deny}
  office: {key: client_ip, values: [192.0.2.9], action: bypass}
upstreams: {demo: echo}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: demo
    lists: [stolen, office]
    limits:
      - {name: phone, key: phone, rates: [1/1m, 5/1h], penalty: {ban: 1h, after: 3}}
      - {name: user, key: user, rate: 3/1m, mode: shadow}
      - {name: gone, key: global, rate: 1/1m, mode: off}
  - name: body
    match: {methods: [POST], path: /body}
    upstream: demo
    limits: [{name: ip, key: client_ip, rate: 2/1m}, {name: number, key: number, rate: 1/1m}]
  - {name: vip, match: {path: /send/x, headers: {X-App: "7"}, query: {a: "*"}, host: api.example.com}, upstream: demo}
  - {name: away, match: {path: /away}, redirect: {to: "https://{host}/there", status: 308}}
`

func TestExplain_TellsOfEveryStage(t *testing.T) {
	w := newProxy(t, explained)
	e := w.explains("POST", "/send", "X-Phone: 138 0013 8000")
	if e.Route == nil || e.Route.Name != "send" || e.Answer != nil || e.Upstream == nil || e.Upstream.Target != "/send" {
		t.Fatalf("route %+v, answer %+v, upstream %+v; want it forwarded by send", e.Route, e.Answer, e.Upstream)
	}
	if got := e.Keys[0]; got.Value != "phone=+86138****8000" || got.From != "header:X-Phone" || len(got.Hash) != keyDigits {
		t.Errorf("key %+v; want it normalized, masked and hashed", got)
	}
	if got := e.Upstream.Header["X-Phone-E164"]; len(got) != 1 || !strings.Contains(got[0], "*") {
		t.Errorf("X-Phone-E164: %q; want it masked", got)
	}
	if len(e.Limits) != 3 {
		t.Fatalf("limits %+v; want three", e.Limits)
	}
	phone, user, gone := e.Limits[0], e.Limits[1], e.Limits[2]
	if !phone.Allowed || len(phone.Windows) != 2 || phone.Windows[1].Rate != "5/1h" || phone.Windows[1].Remaining != 5 || phone.Algorithm != "token_bucket" ||
		phone.OnStoreFailure != "local" || phone.Penalty != "a ban of 1h after refusals at the rate 3/1h" {
		t.Errorf("limit phone: %+v", phone)
	}
	if user.Asked || !strings.Contains(user.Reason, "skip") || user.Mode != "shadow" || !e.Keys[1].Skipped {
		t.Errorf("limit user: %+v, key %+v; want it left out, for its key is missing", user, e.Keys[1])
	}
	if gone.Asked || !strings.Contains(gone.Reason, "off") {
		t.Errorf("limit gone: %+v; want it off", gone)
	}
	if d := e.Decision; !d.Asked || !d.Allowed || d.Slots != 1 || d.Store != "memory" {
		t.Errorf("decision %+v", d)
	}
	if on := e.Lists; len(on) != 2 || on[0].Name != "stolen" || on[0].Hit || on[1].Hit {
		t.Errorf("lists %+v; want two without a hit", on)
	}
}

func TestExplain_WhyNotTheOtherRoutes(t *testing.T) {
	w := newProxy(t, explained)
	e := w.explains("GET", "http://example.com/send/x?b=1", "X-App: 8")
	if e.Route != nil || e.Answer == nil || e.Answer.Status != 404 {
		t.Fatalf("route %+v, answer %+v; want none and 404", e.Route, e.Answer)
	}
	because := map[string][]string{}
	for _, o := range e.Others {
		because[o.Name] = o.Because
	}
	for name, want := range map[string][]string{
		"vip":  {"host: want api.example.com", "header: want X-App: 7", "query: want a"},
		"send": {"path: want /send", "method: want POST"},
		"away": {"path: want /away"},
	} {
		if !slices.Equal(because[name], want) {
			t.Errorf("not %s because of %q; want %q", name, because[name], want)
		}
	}
	if e.Others[0].Name != "away" {
		t.Errorf("nearest %s; want away, of which one matcher fails", e.Others[0].Name)
	}
}

func TestExplain_RefusalsAreThoseOfServing(t *testing.T) {
	w := newProxy(t, explained)
	for range 2 {
		w.send("POST", "/send", "X-Phone: 13800138000")
	}
	for range 2 {
		w.send("POST", "/body", "Content-Type: application/json", `{"phone":"13800138001"}`)
		w.send("POST", "/body", "Content-Type: application/json", `{"phone":"13800138002"}`)
	}
	for _, c := range []struct {
		method, url string
		lines       []string
	}{
		{"POST", "/send", []string{"X-Phone: 13800138000"}},
		{"POST", "/send", nil},
		{"POST", "/send", []string{"X-Phone: 13800138000", "X_Phone: 13800138001"}},
		{"POST", "/send", []string{"X-Phone: 13800138009"}},
		{"POST", "/send", []string{"X-Phone: 13800138003", "Connection: X-Phone"}},
		{"POST", "/send", []string{"X-Phone: 13800138003", "Max-Forwards: 3"}},
		{"POST", "/send;x", []string{"X-Phone: 13800138003"}},
		{"POST", "/SEND", []string{"X-Phone: 13800138000"}},
		{"POST", "/body", []string{"Content-Type: application/json", `{"phone":"13800138003"}`}},
		{"POST", "/body", []string{"Content-Type: application/json", `{"phone":`}},
		{"GET", "/send", nil},
		{"GET", "/nowhere", nil},
		{"GET", "/away", nil},
		{"GET", "/a%2fb", nil},
	} {
		e := w.explains(c.method, c.url, c.lines...)
		got := w.send(c.method, c.url, c.lines...)
		switch {
		case e.Answer == nil && got.Code != 200, e.Answer != nil && e.Answer.Status != got.Code:
			t.Errorf("%s %s %q: explained as %+v, served with %d\n%s", c.method, c.url, c.lines, e.Answer, got.Code, got.Body)
		case e.Answer != nil:
			for _, name := range []string{"Allow", "Location", "RateLimit-Policy"} {
				if want := strings.Join(got.Header()[http.CanonicalHeaderKey(name)], ","); strings.Join(http.Header(e.Answer.Header).Values(name), ",") != want {
					t.Errorf("%s %s %q: %s is explained as %q, served as %q", c.method, c.url, c.lines, name, e.Answer.Header[name], want)
				}
			}
		}
	}
}

// What a connection refuses before any stage is refused in an explanation too.
func TestExplain_HeadsThatConnectionsRefuse(t *testing.T) {
	w := newProxy(t, explained)
	long := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		method, url, line string
		status            int
	}{
		{"GET", "/away", "Expect: later", 417},
		{"GET", "/away", "Expect: 100-continue", 308},
		{"GET", "/away", "Transfer-Encoding: gzip", 501},
		{"GET", "/away", "Content-Length: x", 400},
		{"GET", "/away", "X-A: " + long, 431},
		{"GET", "/" + long, "X-A: b", 414},
		{"GET", "/\xfc", "X-A: b", 400},
		{"CONNECT", "/away", "X-A: b", 405},
	} {
		if e := w.explains(c.method, c.url, c.line); e.Answer == nil || e.Answer.Status != c.status {
			t.Errorf("%s %.20s %.20s: %+v, want %d", c.method, c.url, c.line, e.Answer, c.status)
		}
	}
	if e := w.explains("GET", "/away", slices.Repeat([]string{"X-A: b"}, http1.MaxFields)...); e.Answer == nil || e.Answer.Status != 431 {
		t.Errorf("with Host one field too many: %+v, want 431", e.Answer)
	}
}

func TestExplain_TakesNothing(t *testing.T) {
	w := newProxy(t, strings.Replace(explained, "    lists: [stolen, office]", "    new_keys: 1/1m\n    idempotency: {header: Idempotency-Key, life: 1d, repeats: 5}", 1))
	for range 20 {
		w.explains("POST", "/send", "X-Phone: 13800138000", "Idempotency-Key: a", `{"a":1}`)
		w.explains("POST", "/send", "X-Phone: 13800138001")
	}
	if keys, _ := w.store.Keys(); keys != 0 || len(w.Counts()) != 0 || w.log.String() != "" {
		t.Errorf("%d keys, counts %v, log %s; want nothing", keys, w.Counts(), w.log.String())
	}
	if got := testutil.CollectAndCount(w.metrics.newKeys); got != 0 {
		t.Errorf("%d series of new keys; want none", got)
	}
	w.sends(200, "POST", "/send", "X-Phone: 13800138000", "Idempotency-Key: a", `{"a":1}`)
	if e := w.explains("POST", "/send", "X-Phone: 13800138001"); e.Answer == nil || e.Answer.Status != 429 || !strings.Contains(e.Answer.Why, "new keys") {
		t.Errorf("a second new key: %+v; want it refused", e.Answer)
	}
	if e := w.explains("POST", "/send", "X-Phone: 13800138000", "Idempotency-Key: a", `{"a":1}`); !e.Decision.Repeat || e.Answer != nil {
		t.Errorf("a repeat: %+v, %+v; want it to pass", e.Decision, e.Answer)
	}
	e := w.explains("POST", "/send", "X-Phone: 13800138000", "Idempotency-Key: b", `{"a":1}`)
	if e.Answer == nil || e.Answer.Status != 429 || e.Decision.WaitMS < 50_000 || e.Limits[0].Windows[0].Allowed || !e.Limits[0].Windows[1].Allowed || e.Limits[0].Windows[1].Remaining != 4 {
		t.Errorf("another request: %+v, %+v; want it refused by 1/1m alone, for most of a minute", e.Answer, e.Limits[0].Windows)
	}
}

func TestExplain_ListsThatDecide(t *testing.T) {
	w := newProxy(t, explained)
	if e := w.explains("POST", "/send", "X-Phone: 13800138009"); !e.Lists[0].Hit || e.Answer == nil || e.Answer.Status != 403 {
		t.Errorf("lists %+v, answer %+v; want 403 for stolen", e.Lists, e.Answer)
	}
	r := view.ExplainRequest{Method: "POST", URL: "/send", Header: map[string][]string{"X-Phone": {"13800138000"}}, Client: netip.MustParseAddr("192.0.2.9")}
	e, err := w.Explain(t.Context(), r)
	if err != nil || !e.Lists[1].Hit || e.Decision.Asked || e.Upstream == nil || !strings.Contains(e.Decision.Reason, "office") || e.Limits[0].Asked {
		t.Errorf("%v: lists %+v, decision %+v, limits %+v; want that office bypasses limits", err, e.Lists, e.Decision, e.Limits)
	}
}

func TestExplain_Slots(t *testing.T) {
	const file = `
store: redis
redis: {mode: MODE, addrs: ["127.0.0.1:1"]}
upstreams: {demo: echo}
routes: [{name: a, match: {path: /a}, upstream: demo, limits: [{name: u, key: header:X-User, rates: [1/1m, 2/1h]}, {name: g, key: global, rate: 9/1m}]}]
`
	for mode, want := range map[string]int{"single": 1, "cluster": 2} {
		w := newProxy(t, strings.Replace(file, "MODE", mode, 1))
		if e := w.explains("GET", "/a", "X-User: alice"); e.Decision.Slots != want || e.Decision.Store != "redis" {
			t.Errorf("%s: %+v; want %d slots", mode, e.Decision, want)
		}
	}
}

func TestExplain_StoreAway(t *testing.T) {
	for policy, status := range map[string]int{"deny": 503, "allow": 0} {
		w := newProxy(t, limitYAML("{name: l, key: header:X-User, rate: 4/1m, on_store_failure: "+policy+"}"), func(o *Options) { o.Store = failingPeek{o.Store} })
		e := w.explains("GET", "/a", "X-User: alice")
		if e.Decision.Asked || e.Limits[0].Asked || status == 0 && e.Answer != nil || status != 0 && (e.Answer == nil || e.Answer.Status != status) {
			t.Errorf("%s: %+v, %+v, %+v", policy, e.Decision, e.Limits, e.Answer)
		}
	}
}

// A key that something else has overwritten does not make Redis unreachable.
func TestExplain_KeyOfAnotherType(t *testing.T) {
	addr := redistest.Start(t).Addr
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	for _, redisson := range []string{"", ", redisson_name: java"} {
		w := newProxy(t, limitYAML("{name: l, key: global, rate: 4/1m"+redisson+"}"), func(o *Options) { o.Store = redisStore(t, addr) })
		w.send("GET", "/a")
		for _, name := range client.Keys(t.Context(), "*").Val() {
			client.Del(t.Context(), name)
			client.LPush(t.Context(), name, "x")
		}
		e := w.explains("GET", "/a")
		for _, why := range []string{e.Decision.Reason, e.Limits[0].Reason} {
			if e.Limits[0].Asked || strings.Contains(why, "unreachable") || !strings.Contains(why, "unreadable") {
				t.Errorf("explained as %q", why)
			}
		}
	}
}

// What is told of the upstream's request is what a real one receives.
func TestExplain_UpstreamIsSentThis(t *testing.T) {
	var mu sync.Mutex
	var seen *http.Request
	url := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = r
	})
	f := startServer(t, `
client_ip: {trusted_proxies: [127.0.0.0/8]}
keys: {user: {from: query:user, set_header: X-User}}
routes:
  - name: all
    match: {path: /v1/*}
    upstream: `+url+`
    rewrite: {strip_prefix: /v1, add_prefix: /in, headers: {set: {X-Set: "1", Accept: "a/b"}, remove: [X-Gone]}}
    limits: [{key: user, rate: 100/1m}]
`)
	lines := []string{
		"Accept: text/html", "Accept-Encoding: br", "User-Agent: t", "Connection: keep-alive, X-Hop", "X-Hop: 1", "Te: trailers", "X-Gone: 1", "X-User: mallory",
		"X-Forwarded-For: 198.51.100.7", "X-Forwarded-Proto: https", "X-Real-Ip: 1.2.3.4", "Proxy: x", "Via: 1.1 other", "Cookie: a=b", "X.Odd: 1", "Keep-Alive: 5",
	}
	for _, target := range []string{"/v1/a?user=u&x=%2f", "/v1/b?user=u"} {
		r := view.ExplainRequest{Method: "GET", URL: "http://api.example.com" + target, Header: map[string][]string{}}
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			r.Header[name] = []string{value}
		}
		e, err := f.Explain(t.Context(), r)
		if err != nil || e.Upstream == nil {
			t.Fatalf("%v: %+v", err, e.Answer)
		}
		f.dial("GET " + target + " HTTP/1.1\r\nHost: api.example.com\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n").WantStatus(200)
		mu.Lock()
		got, header := seen, maps.Clone(seen.Header)
		mu.Unlock()
		header.Del("X-Request-Id")
		delete(e.Upstream.Header, "X-Request-Id")
		delete(header, "Te")         // which the transport adds,
		delete(header, "Connection") // with this
		if got.RequestURI != e.Upstream.Target || got.Host != e.Upstream.Host || got.Method != e.Upstream.Method {
			t.Errorf("sent %s %s to %s; explained as %+v", got.Method, got.RequestURI, got.Host, e.Upstream)
		}
		if !maps.EqualFunc(header, e.Upstream.Header, slices.Equal) {
			t.Errorf("sent\n%v\nexplained as\n%v", header, e.Upstream.Header)
		}
		if want := []string{"Connection", "Keep-Alive", "Proxy", "Te", "X-Gone", "X-Hop"}; !slices.Equal(e.Upstream.Removed, want) {
			t.Errorf("removed %q; want %q", e.Upstream.Removed, want)
		}
		if e.Upstream.Header["X-User"][0] != "u" || !slices.Contains(e.Upstream.Set, "X-User") || !slices.Contains(e.Upstream.Set, "Accept") || slices.Contains(e.Upstream.Set, "Cookie") {
			t.Errorf("set %q", e.Upstream.Set)
		}
	}
}

func TestExplain_WhatIsNoRequest(t *testing.T) {
	w := newProxy(t, explained)
	for want, r := range map[string]view.ExplainRequest{
		"is not a method":            {Method: "A B", URL: "/a"},
		"empty URL":                  {Method: "GET"},
		"a fragment":                 {Method: "GET", URL: "/a#b"},
		"no host":                    {Method: "GET", URL: "http:///a"},
		"is not a URL":               {Method: "GET", URL: "a/b"},
		"has a space":                {Method: "GET", URL: "/a b"},
		"is not a header field name": {Method: "GET", URL: "/a", Header: map[string][]string{"A B": {"c"}}},
		"a line break":               {Method: "GET", URL: "/a", Header: map[string][]string{"A": {"c\r\nd"}}},
	} {
		if _, err := w.Explain(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want an error about %q", r, err, want)
		}
	}
}

// A failingPeek is a store that cannot be asked.
type failingPeek struct{ limiter.AdminStore }

func (failingPeek) Peek(context.Context, []limiter.Claim, *limiter.Decision) error {
	return limiter.ErrUnavailable
}

// A key that a list and two limits read is one.
func TestExplain_NamesAKeyOnce(t *testing.T) {
	w := newProxy(t, `
lists: {office: {key: client_ip, values: ["192.0.2.0/24"], action: bypass}}
routes:
  - match: {path: /}
    upstream: echo
    lists: [office]
    limits: [{name: a, key: client_ip, rate: 1/1h}, {name: b, key: client_ip, rate: 2/1d}, {name: c, key: "header:X-User", rate: 1/1h}]
`)
	var names []string
	for _, k := range w.explains("GET", "/").Keys {
		names = append(names, k.Name)
	}
	if want := []string{"client_ip", "header:X-User"}; !slices.Equal(names, want) {
		t.Errorf("keys %q; want %q", names, want)
	}
}
