package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/weirtest"
)

// echoed is what the built-in upstream has seen of a request.
func echoed(t *testing.T, rec *httptest.ResponseRecorder) (seen struct {
	Host, Path, Query, Body string
	Headers                 http.Header
}) {
	t.Helper()
	if err := json.Unmarshal(rec.Body.Bytes(), &seen); err != nil {
		t.Fatalf("%s: %v", rec.Body, err)
	}
	return seen
}

func TestRewrite_Path(t *testing.T) {
	for _, c := range []struct{ strip, add, path, want string }{
		{"", "", "/a/b", "/a/b"},
		{"/a", "", "/a/b", "/b"},
		{"/a", "", "/a/", "/"},
		{"/a", "", "/a", "/"},
		{"/a", "", "/ab/c", "/ab/c"},
		{"/a", "", "/b/a", "/b/a"},
		{"/a/b", "", "/a/b/c", "/c"},
		{"", "/x", "/a", "/x/a"},
		{"", "/x", "/", "/x/"},
		{"/a", "/x/y", "/a/b%2C", "/x/y/b%2C"},
		{"/a", "/x", "/a", "/x"},
		{"/a", "/x", "*", "*"},
	} {
		r := newRewrite(&config.Route{Rewrite: config.Rewrite{StripPrefix: c.strip, AddPrefix: c.add}})
		if got := r.path(&routing.Target{Path: c.path, Forwarded: c.path}); got != c.want {
			t.Errorf("without %q, with %q: %s became %s, want %s", c.strip, c.add, c.path, got, c.want)
		}
	}
}

func TestRewrite_WhatTheUpstreamSees(t *testing.T) {
	w := newProxy(t, `
upstreams: {demo: echo}
routes:
  - name: a
    match: {path: /api/*}
    upstream: demo
    rewrite:
      strip_prefix: /api
      add_prefix: /v2
      headers: {set: {X-App: weir, Host: inner.example}, remove: [Cookie, X-Secret]}
`)
	rec := w.sends(200, "GET", "//api/./x%2cy?q=%20", "X-App: mine", "X_app: mine", "Cookie: a=b", "X-Secret: 1", "X_Secret: 2", "Connection: X-App", "X-Other: kept")
	seen := echoed(t, rec)
	if seen.Path != "/v2/x%2Cy" || seen.Query != "q=%20" || seen.Host != "inner.example" {
		t.Errorf("upstream sees %s?%s at %s", seen.Path, seen.Query, seen.Host)
	}
	h := seen.Headers
	leaked := 0
	for _, name := range []string{"X_app", "X_App", "Cookie", "X-Secret", "X_secret", "X_Secret"} {
		leaked += len(h[name])
	}
	if h.Get("X-App") != "weir" || leaked > 0 || h.Get("X-Other") != "kept" {
		t.Errorf("upstream sees %v", h)
	}
	if h.Get("X-Forwarded-Host") != "example.com" {
		t.Errorf("upstream is told of host %q, want that the client asked for", h.Get("X-Forwarded-Host"))
	}
	if line := w.lines("request")[0]; line["path"] != "/api/x,y" {
		t.Errorf("log line has path %v, want that of the client", line["path"])
	}
}

func TestRewrite_WhatTheClientSees(t *testing.T) {
	server := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "secret/1.0")
		w.Header().Set("X-Frame-Options", "ALLOW")
		w.Header().Set("Ratelimit", "a lie")
		w.Header().Set("X-Kept", "1")
	})
	w := newProxy(t, "routes:\n  - {name: a, match: {path: /a}, upstream: '"+server+"', limits: [{name: l, key: global, rate: 9/1m}],\n"+
		"     rewrite: {response_headers: {set: {X-Frame-Options: DENY}, remove: [Server, RateLimit]}}}\n")
	h := w.sends(200, "GET", "/a").Header()
	if h.Get("Server") != "" || h.Get("X-Frame-Options") != "DENY" || h.Get("X-Kept") != "1" || !strings.HasPrefix(h.Get("RateLimit"), `"l";r=8`) {
		t.Errorf("client sees %v", h)
	}
}

func TestReply_Respond(t *testing.T) {
	w := newProxy(t, `
routes:
  - {name: a, match: {path: /a}, respond: {status: 410, body: '{"gone":true}', content_type: application/json, headers: {Cache-Control: max-age=60}}, limits: [{name: l, key: global, rate: 2/1h}]}
  - {name: b, match: {path: /b}, respond: {}}
  - {name: c, match: {path: /c}, respond: {status: 204}}
  - {name: d, match: {path: /d}, respond: {status: 404, body: none}, limits: [{name: only, key: global, rate: 1/1h, count: {status: [2xx]}}]}
`)
	rec := w.sends(410, "POST", "/a")
	h := rec.Header()
	if rec.Body.String() != `{"gone":true}` || h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != "13" || h.Get("Cache-Control") != "max-age=60" || !strings.HasPrefix(h.Get("RateLimit"), `"l";r=1`) {
		t.Errorf("got %q %v", rec.Body, h)
	}
	if rec := w.sends(410, "HEAD", "/a"); rec.Body.Len() > 0 || rec.Header().Get("Content-Length") != "13" {
		t.Errorf("HEAD: got %q %v", rec.Body, rec.Header())
	}
	w.sends(429, "GET", "/a")
	if h := w.sends(200, "GET", "/b").Header(); h.Get("Content-Length") != "0" || h.Get("Content-Type") != "" {
		t.Errorf("an empty answer has %v", h)
	}
	if h := w.sends(204, "GET", "/c").Header(); h.Get("Content-Length") != "" {
		t.Errorf("a 204 has %v", h)
	}
	w.sendsAll(times(3, 404), "GET", "/d") // which is not among what counts
}

func TestReply_Redirect(t *testing.T) {
	w := newProxy(t, `
routes:
  - {name: a, match: {path: /old/*}, redirect: {to: "https://www.{host}/new{path}{query}", status: 308}}
  - {name: b, match: {path: /same/*}, redirect: {to: "{path}/{query}"}}
  - {name: c, match: {path: /one}, redirect: {to: "https://one.example/#x"}, limits: [{key: global, rate: 1/1h}]}
`)
	for _, c := range []struct {
		status       int
		target, want string
	}{
		{308, "/old/a?b=c", "https://www.example.com/new/old/a?b=c"},
		{308, "/old/%e4?{host}", "https://www.example.com/new/old/%E4?{host}"},
		{307, "//same//evil.example", "/same/evil.example/"},
		{307, "/same/x?a\"<b", "/same/x/?a%22%3Cb"},
		{308, "/old/a?b%23c", "https://www.example.com/new/old/a?b%23c"},
		{307, "/one", "https://one.example/#x"},
	} {
		w.hasField(w.sends(c.status, "POST", c.target), "Location", c.want)
	}
	w.sends(429, "GET", "/one")
}

func TestMatch_Query(t *testing.T) {
	w := newProxy(t, `
upstreams: {demo: echo}
routes:
  - {name: any, match: {path: /a}, respond: {body: any}}
  - {name: v, match: {path: /a, query: {v: "*"}}, respond: {body: v}}
  - {name: v2, match: {path: /a, query: {v: "2"}}, respond: {body: v2}}
  - {name: both, match: {path: /a, query: {v: "2", w: "x y"}}, respond: {body: both}}
  - {name: header, match: {path: /a, query: {v: "2", w: "*"}, headers: {X-H: "*"}}, respond: {body: header}}
  - {name: only, match: {path: /only, methods: [POST], query: {q: "1"}}, respond: {body: only}}
`)
	for _, c := range []struct {
		target, want string
		lines        []string
	}{
		{"/a", "any", nil},
		{"/a?v", "v", nil},
		{"/a?w=x+y", "any", nil},
		{"/a?%76=%32", "v", nil}, // earlier in the file, and no less specific
		{"/a?v=2&w=x+y", "both", nil},
		{"/a?v=2&w=x%20y", "both", nil},
		{"/a?v=2&w=x+y", "header", []string{"X-H: 1"}},
		{"/only?q=1", "only", nil},
	} {
		if got := w.sends(200, "POST", c.target, c.lines...).Body.String(); got != c.want {
			t.Errorf("%s went to %s, want %s", c.target, got, c.want)
		}
	}
	for _, twofold := range []string{"/a?v=1&v=2", "/a?v=%zz", "/a?v=1;v=2", "/only?q=1&q=1", "/a?V=2", "/a?v[]=2", "/a?+v=2", "/a?v=1&v[x]=2", "/only?q.=2&q[=1&Q=1"} {
		if body := w.sends(400, "POST", twofold).Body.String(); !strings.Contains(body, "query not acceptable") {
			t.Errorf("%s: %s", twofold, body)
		}
	}
	w.sends(404, "POST", "/only?q=2")
	w.sends(404, "GET", "/only")
	if rec := w.sends(405, "GET", "/only?q=1"); rec.Header().Get("Allow") != "POST" {
		t.Errorf("Allow %q", rec.Header().Get("Allow"))
	}
}

func TestPreflight_DoesNotCount(t *testing.T) {
	yaml := func(more string) string {
		return "upstreams: {demo: echo}\nroutes:\n  - {name: a, match: {path: /a}, upstream: demo, " + more + "limits: [{name: l, key: header:X-Phone, rate: 1/1h}, {name: all, key: global, rate: 1/1h}]}\n"
	}
	preflight := []string{"Origin: https://app.example", "Access-Control-Request-Method: POST"}
	w := newProxy(t, yaml(""))
	for range 3 {
		rec := w.sends(200, "OPTIONS", "/a", preflight...)
		if rec.Header().Get("RateLimit") != "" {
			t.Errorf("a preflight is told %q", rec.Header().Get("RateLimit"))
		}
	}
	w.sends(200, "POST", "/a", "X-Phone: 1")
	for _, c := range []struct {
		name, method string
		lines        []string
	}{
		{"another method", "POST", preflight},
		{"no origin", "OPTIONS", preflight[1:]},
		{"no method", "OPTIONS", preflight[:1]},
		{"two methods", "OPTIONS", slices.Concat(preflight, preflight[1:])},
		{"a method that overrides", "OPTIONS", slices.Concat(preflight, []string{"X-HTTP-Method-Override: POST"})},
	} {
		if rec := w.send(c.method, "/a", slices.Concat(c.lines, []string{"X-Phone: 1"})...); rec.Code != 429 {
			t.Errorf("%s: %d, want that it counts", c.name, rec.Code)
		}
	}
	r := httptest.NewRequest("OPTIONS", "/a", strings.NewReader("body"))
	r.Header = http.Header{"Origin": {"x"}, "Access-Control-Request-Method": {"POST"}, "X-Phone": {"1"}}
	rec := httptest.NewRecorder()
	if w.ServeHTTP(rec, r); rec.Code != 429 {
		t.Errorf("with a body: %d, want that it counts", rec.Code)
	}
	w = newProxy(t, yaml("count_preflight: true, "))
	w.sends(400, "OPTIONS", "/a", preflight...) // it has no key
	w.sendsAll([]int{200, 429}, "OPTIONS", "/a", slices.Concat(preflight, []string{"X-Phone: 1"})...)
}

const redirectingYAML = `
listen: {http: ":8080", https: ":8443", redirect_https: true, tls: {cert: a.pem, key: a.key}}
client_ip: {trusted_proxies: [10.0.0.0/8]}
routes:
  - {name: all, match: {path: /*}, respond: {body: ok}, limits: [{name: l, key: client_ip, rate: 1/1h}]}
`

// A request without TLS is sent again with it: the same host, path and query, byte for byte, and
// the port at which the listener is. It takes no permit.
func TestRedirect_ToHTTPS(t *testing.T) {
	p := newProxy(t, redirectingYAML)
	for target, want := range map[string]string{
		"http://Example.com/a%2Fb//c?x=%41&y=":       "https://example.com:8443/a%2Fb//c?x=%41&y=",
		"http://example.com:8080/":                   "https://example.com:8443/",
		"http://[2001:db8::1]/a":                     "https://[2001:db8::1]:8443/a",
		"http://a.example//evil.example/a":           "https://a.example:8443//evil.example/a",
		"http://a.example/.well-known/acme-challeng": "https://a.example:8443/.well-known/acme-challeng",
	} {
		got := p.sends(http.StatusPermanentRedirect, "GET", target).Header().Get("Location")
		if got != want {
			t.Errorf("%s is redirected to %s; want %s", target, got, want)
		}
	}
	p.sends(http.StatusPermanentRedirect, "POST", "http://a.example/a", "a body")
	p.sends(http.StatusOK, "GET", "http://a.example/.well-known/acme-challenge/token")
	if line := p.lines("request")[0]; line["status"] != float64(308) {
		t.Errorf("log line %v; want the redirect", line)
	}
}

// fromPeer sends GET http://a.example:8080/a from a peer, with these lines of X-Forwarded-Proto.
func (p *testProxy) fromPeer(peer string, lines ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "http://a.example:8080/a", nil)
	r.RemoteAddr, r.Header["X-Forwarded-Proto"] = peer, lines
	return weirtest.Exchange(p, r)
}

// Only a trusted proxy may say by which scheme the client came, in the last element of its field.
func TestRedirect_SchemeOfTrustedProxies(t *testing.T) {
	redirecting := newProxy(t, redirectingYAML)
	matching := newProxy(t, `
client_ip: {trusted_proxies: [10.0.0.0/8]}
routes:
  - {name: any, match: {path: /a}, respond: {body: any}}
  - {name: plain, match: {path: /a, scheme: http}, respond: {body: http}}
  - {name: tls, match: {path: /a, scheme: https}, respond: {body: https}}
`)
	for _, c := range []struct {
		peer           string
		lines          []string
		location, body string
	}{
		{"192.0.2.1:1", nil, "https://a.example:8443/a", "http"},
		{"192.0.2.1:1", []string{"https"}, "https://a.example:8443/a", "http"},
		{"10.0.0.1:1", nil, "https://a.example/a", "http"},
		{"10.0.0.1:1", []string{"https"}, "", "https"},
		{"10.0.0.1:1", []string{"HTTPS"}, "", "https"},
		{"10.0.0.1:1", []string{"http"}, "https://a.example/a", "http"},
		{"10.0.0.1:1", []string{"https, http"}, "https://a.example/a", "http"},
		{"10.0.0.1:1", []string{"http", "http ,\thttps "}, "", "https"},
		{"10.0.0.1:1", []string{"wss"}, "", "https"}, // what Traefik sends of a WebSocket
		{"10.0.0.1:1", []string{"ws"}, "https://a.example/a", "http"},
		{"10.0.0.1:1", []string{"wss2"}, "https://a.example/a", "http"},
	} {
		redirecting.hasField(redirecting.fromPeer(c.peer, c.lines...), "Location", c.location)
		if got := matching.fromPeer(c.peer, c.lines...).Body.String(); got != c.body {
			t.Errorf("from %s with %q: route %q; want %q", c.peer, c.lines, got, c.body)
		}
	}
}

// The port that clients use may be another than that of the listener, and none is written if it is 443.
func TestRedirect_Port(t *testing.T) {
	for listen, want := range map[string]string{
		`https: ":8443", https_port: 443`:  "https://a.example/a",
		`https: ":8443", https_port: 9443`: "https://a.example:9443/a",
		`https: ":443"`:                    "https://a.example/a",
	} {
		p := newProxy(t, "listen: {redirect_https: true, tls: {cert: a.pem, key: a.key}, "+listen+"}\nroutes: [{match: {path: /*}, upstream: echo}]\n")
		p.hasField(p.fromPeer("192.0.2.1:1"), "Location", want)
	}
	chosen := func(o *Options) { o.HTTPSAddress = func() string { return "[::]:50123" } }
	p := newProxy(t, "listen: {redirect_https: true, https: ':0', tls: {cert: a.pem, key: a.key}}\nroutes: [{match: {path: /*}, upstream: echo}]\n", chosen)
	p.hasField(p.fromPeer("192.0.2.1:1"), "Location", "https://a.example:50123/a")
}

// Explain shows the redirect of a request over http; without a scheme it takes the one that is served.
func TestRedirect_Explained(t *testing.T) {
	p := newProxy(t, redirectingYAML)
	for url, want := range map[string]int{"http://a.example/a": 308, "https://a.example/a": 200, "/a": 200} {
		e, err := p.Explain(t.Context(), view.ExplainRequest{Method: "GET", URL: url})
		if err != nil || want == 308 && (e.Answer == nil || e.Answer.Status != want) || want == 200 && e.Answer.Status != want {
			t.Errorf("%s: %v, %+v; want %d", url, err, e.Answer, want)
		}
	}
}
