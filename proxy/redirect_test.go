package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/weirtest"
)

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
		{"10.0.0.1:1", []string{"wss"}, "https://a.example/a", "http"},
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
