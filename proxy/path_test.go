package proxy

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// An upstream receives the path as the client wrote it, but for what every server reads alike: an escape of a
// letter, a digit, a hyphen, a dot, an underscore or a tilde, dot segments and repeated slashes. A count does not
// depend on the spelling.
func TestForward_EscapesArriveAsTheyWereSent(t *testing.T) {
	got := make(chan string, 1)
	for _, name := range []string{"http1", "h2c"} {
		w := newProxy(t, "upstreams: {u: "+startVersion(t, name, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI })+"}\nroutes:\n"+
			"  - {name: api, match: {path: '/api/*'}, upstream: u, rewrite: {strip_prefix: /api, add_prefix: /v2}}\n"+
			"  - {name: dav, match: {path: '/a+b/*'}, upstream: u, rewrite: {strip_prefix: /a+b}}\n"+
			"  - {name: rest, match: {path: '/*'}, upstream: u}\n")
		for sent, want := range map[string]string{
			"/a%2Bb%3Dc%26d%3Ae%40f":      "/a%2Bb%3Dc%26d%3Ae%40f",
			"/a+b=c&d:e@f":                "/a+b=c&d:e@f",
			"/a%2bb%21%24%27%28%29%2A%2C": "/a%2Bb%21%24%27%28%29%2A%2C", // with other digits it is the same escape
			"/%7Euser/%41%2d%2E%5f":       "/~user/A-._",
			"/%c3%b6|%3c":                 "/%C3%B6%7C%3C",
			"/x/%2e%2e//c%2Bb/./c":        "/c%2Bb/c",
			"/a%25b;c%3Bd":                "/a%25b;c%3Bd",
			"/a%2Bb?x=%2B+":               "/a%2Bb?x=%2B+",
			"/api/a%40b":                  "/v2/a%40b",
			"/a+b/%3A":                    "/%3A",
			"/a%2Bb/%3A":                  "/:", // the prefix is stripped in the spelling that is matched
			"//a+b//%3A":                  "/%3A",
		} {
			if w.send("GET", "http://example.com"+sent); len(got) == 0 {
				t.Fatalf("%s: %s was not forwarded", name, sent)
			}
			if arrived := <-got; arrived != want {
				t.Errorf("%s: %s arrived as %s; want %s", name, sent, arrived, want)
			}
		}
	}
}

// Spellings of one path are one key and one route.
func TestForward_OneKeyForAllSpellings(t *testing.T) {
	w := newProxy(t, "upstreams: {demo: echo}\nroutes:\n  - {name: user, match: {path: '/u/{id}'}, upstream: demo, limits: [{key: path:id, rate: 2/1h}]}\n"+
		"  - {name: send, match: {path: '/v1/sms:send'}, upstream: demo, limits: [{key: client_ip, rate: 1/1h}]}\n")
	w.sends(200, "GET", "/u/a@b")
	w.sends(200, "GET", "/u/a%40b")
	w.sends(429, "GET", "/u/%61%40b")
	w.sends(200, "POST", "/v1/sms%3Asend")
	w.sends(429, "POST", "/v1/sms:send")
}

// A route may forward repeated slashes; their count does not make another key.
func TestForward_MergeSlashes(t *testing.T) {
	w := newProxy(t, `
upstreams: {demo: echo}
routes:
  - {name: p, match: {path: '/p/*'}, upstream: demo, merge_slashes: false, limits: [{key: 'path:*', rate: 2/1h}]}
  - {name: s, match: {path: '/s/*'}, upstream: demo, merge_slashes: false, rewrite: {strip_prefix: /s}}
  - {name: u, match: {path: '/u/{id}/*'}, upstream: demo, merge_slashes: false, limits: [{key: 'path:id', rate: 9/1h}]}
  - {name: to, match: {path: '/to/*'}, merge_slashes: false, redirect: {to: "{path}"}}
  - {name: rest, match: {path: '/*'}, upstream: demo}
`)
	for _, c := range []struct{ sent, want string }{
		{"/p/https://e.com//x", "/p/https://e.com//x"},
		{"/p/https:/e.com/x", "/p/https:/e.com/x"},
		{"//p/a//b/", "/p/a//b/"},
		{"/p//a", "/p//a"},
		{"/p/b/x//../c", "/p/b/c"}, // some servers merge before they resolve, and some after
		{"/p/c/.//d", "/p/c//d"},
		{"/s//x//y", "/x//y"},
		{"/s", "/s"},
		{"/u/1/a//b", "/u/1/a//b"},
		{"/rest//x", "/rest/x"},
	} {
		if seen := echoed(t, w.sends(200, "GET", c.sent)); seen.Path != c.want {
			t.Errorf("%s arrived as %s; want %s", c.sent, seen.Path, c.want)
		}
	}
	w.sends(429, "GET", "/p/https:///e.com/x")
	if to := w.sends(307, "GET", "//to//evil.example//x").Header().Get("Location"); to != "/to//evil.example//x" {
		t.Errorf("redirected to %s", to)
	}
}

// A repeat of a request with an idempotency key is not counted; another path is no repeat.
func TestForward_AnotherSpellingIsNoRepeat(t *testing.T) {
	w := newProxy(t, "upstreams: {demo: echo}\nroutes:\n  - {name: a, match: {path: '/a/*'}, upstream: demo, idempotency: {header: Idempotency-Key}, limits: [{key: client_ip, rate: 1/1h}]}\n")
	w.sendsAll(times(2, 200), "POST", "/a/x+y", "Idempotency-Key: 1")
	if rec := w.sends(429, "POST", "/a/x%2By", "Idempotency-Key: 1"); strings.Contains(rec.Body.String(), "idempotency") {
		t.Errorf("the problem is %s", rec.Body)
	}
}

// A request of HTTP/1.0 without a host is for whoever was connected to, and never
// for what the upstream is called.
func TestNormalize_NoHostInHTTP10(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, host := range []string{"", "X: 1\r\n"} {
			s := startRecording(t, fine)
			f := over.opened(t, forwardYAML(s.url, "", ""))
			f.dial("GET /x HTTP/1.0\r\n" + host + "\r\n").WantStatus(200)
			if got := s.last(t); !strings.Contains(got, "Host: "+f.addr+"\r\n") {
				t.Errorf("forwarded as %q; want the host %s", got, f.addr)
			}
		}
	})
}

func TestNormalize_NoHostBySocket(t *testing.T) {
	s := startRecording(t, fine)
	f := startServer(t, forwardYAML(s.url, "", ""))
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f.served.Go(func() { f.server.Serve(l) })
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("GET /x HTTP/1.0\r\n\r\n"))
	if got := s.last(t); !strings.Contains(got, "Host: localhost\r\n") {
		t.Errorf("forwarded as %q; want the host localhost", got)
	}
}

// What a proxy that is trusted says of TLS is believed.
func TestNormalize_SchemeOfATrustedProxy(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML("echo", "client_ip: {trusted_proxies: [127.0.0.0/8]}", ""))
		f.dial("GET https://b.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n").WantStatus(200)
		f.dial("GET ftp://b.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n").WantStatus(400)
	})
}

// A fragment made a new key of each request, and hid the query from match.
func TestNormalize_FragmentsAreNoKeys(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, "routes:\n  - {match: {path: /a}, upstream: echo, limits: [{key: \"query:user\", rate: 1/1h}]}\n")
		f.dial("GET /a?user=v HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(200)
		for _, said := range []string{"/a?user=v#1", "/a?user=v#2", "/a#?user=w"} {
			f.dial("GET " + said + " HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(400)
		}
	})
}

// A tunnel is refused on its stream, and what the client sends there is not read.
func TestNormalize_NoTunnelInHTTP2(t *testing.T) {
	s := startServer(t, forwardYAML("echo", cleartext, "")).speaks()
	s.begins(1, ":method", "CONNECT", ":authority", "a:80")
	s.WriteData(1, false, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	var status string
	ended := false
	s.hears("405 and the end of the stream", func(f http2.Frame) bool { // in any order
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			ended = f.ErrCode == http2.ErrCodeNo
		}
		return status != "" && ended
	})
	if status != "405" {
		t.Errorf("status %s; want 405", status)
	}
}
