package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/weirtest"
)

const careless = `
routes:
  - {name: send, match: {path: /v1/send, methods: [POST]}, upstream: echo, limits: [{key: global, rate: 1/1h}]}
  - {name: Search, match: {path: /v1/Search, methods: [GET]}, upstream: echo, limits: [{key: global, rate: 1/1h}]}
  - {name: user, match: {path: "/u/{id}"}, upstream: echo, limits: [{key: "path:id", rate: 1/1h}]}
  - {name: tag, match: {path: "/tag/{t:[A-Z]+}/x"}, upstream: echo, limits: [{key: "path:t", rate: 1/1h}]}
  - {name: me, match: {path: /u/me}, upstream: echo, limits: [{key: global, rate: 1/1h}]}
  - {name: files, match: {path: /files/*}, upstream: echo, limits: [{key: global, rate: 1/1h}]}
  - {name: open, match: {path: /files/Public}, upstream: echo}
  - {name: any, match: {path: /v1/send}, upstream: echo}
  - {name: health, match: {path: /health}, upstream: echo}
  - {name: slashed, match: {path: /u/x/}, upstream: echo}
  - {name: rest, match: {path: /*}, upstream: echo}
`

// What a careless framework takes for a limited route's path or method is counted
// there, however it is spelled.
func TestMatch_OtherSpellingsCount(t *testing.T) {
	for spelled, counted := range map[string]string{
		"POST /V1/send": "POST /v1/send", "POST /v1/SEND/": "POST /v1/send", "POST /v1/send/": "POST /v1/send", "POST //v1/./Send": "POST /v1/send",
		"post /v1/send": "POST /v1/send", "pOsT /V1/Send/": "POST /v1/send", "POST /v1/%C5%BFend": "POST /v1/send", "POST /v1/%73END": "POST /v1/send",
		"GET /v1/search": "GET /v1/Search", "HEAD /v1/Search": "GET /v1/Search", "HEAD /v1/search/": "GET /v1/Search", "get /v1/SEARCH": "GET /v1/Search",
		"GET /u/alice/": "GET /u/alice", "GET /U/alice": "GET /u/alice", "DELETE /U/alice/": "GET /u/alice",
		"GET /TAG/DE/x/": "GET /tag/DE/X", "GET /files": "GET /files/a", "GET /Files/a/b/": "GET /files/a", "HEAD /FILES": "GET /files/a",
	} {
		w := newProxy(t, careless)
		for i, want := range []int{200, 429} {
			line := []string{spelled, counted}[i]
			method, target, _ := strings.Cut(line, " ")
			if got := w.send(method, target); got.Code != want {
				t.Errorf("%s and then %s: %d; want %d\n%s", spelled, counted, got.Code, want, got.Body)
			}
		}
	}
}

// Others go where they went, with what they had.
func TestMatch_OthersStay(t *testing.T) {
	w := newProxy(t, careless)
	for range 3 {
		for _, line := range []string{
			"GET /v1/send", "PUT /v1/send", "GET /v1/sent", "GET /V2/send", "POST /v1/Search", "GET /files/Public", "GET /Health", "GET /health/", "GET /u/x/", "GET /", "GET /u", "PUT /V1/SEND", "head /health",
			"GET /tag/DE", "OPTIONS /v1/Search",
		} {
			method, target, _ := strings.Cut(line, " ")
			w.sends(200, method, target)
		}
	}
	w.sends(200, "GET", "/u/Alice")
	w.sends(200, "GET", "/u/alice") // another key: that is what normalize is for
	w.sends(429, "GET", "/U/Alice/")
	if got := w.lines("request"); got[len(got)-1]["path"] != "/U/*/" || got[len(got)-1]["route"] != "user" {
		t.Errorf("logged %v; want the key hidden, and the route", got[len(got)-1])
	}
}

// What would be refused with the method that is acted on is refused with the one that
// was sent.
func TestMatch_RefusesWithAnyMethod(t *testing.T) {
	for _, path := range []string{"/u/alice;x=1", "/u/alice.", "/u/alice%3F", "/u/alice%20x%3F", "/u/alice%23", "/U/alice;x"} {
		for _, method := range []string{"GET", "HEAD", "get", "GeT", "hEAD"} {
			w := newProxy(t, strings.Replace(careless, `path: "/u/{id}"`, `methods: [GET], path: "/u/{id}"`, 1))
			w.sends(400, method, path)
			w.sends(200, "GET", "/u/alice")
		}
	}
}

// Where two limited routes could be meant, none is guessed.
func TestMatch_BetweenTwoItRefuses(t *testing.T) {
	w := newProxy(t, careless)
	w.sends(400, "GET", "/u/ME") // a user of that name, or me
	w.sends(200, "GET", "/u/me")
	w.sends(429, "GET", "/U/me/") // from the catch-all it is me's
}

func TestMatch_EncodedSlash(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, `
routes:
  - {name: kept, match: {path: "/projects/{id}/x"}, upstream: '`+s.url+`', encoded_slash: keep, limits: [{key: "path:id", rate: 1/1h}]}
  - {name: send, match: {path: /v1/send}, upstream: '`+s.url+`', limits: [{key: global, rate: 9/1h}]}
  - {name: rest, match: {path: /*}, upstream: '`+s.url+`', limits: [{key: global, rate: 99/1h}]}
`)
		get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n" }
		f.dial(get("/projects/a%2fb/x")).WantStatus(200)
		if got := s.last(t); !strings.HasPrefix(got, "GET /projects/a%2Fb/x HTTP/1.1\r\n") {
			t.Errorf("forwarded as %q; want the slash escaped", got)
		}
		f.dial(get("/projects/a%2Fb/x")).WantStatus(429)
		f.dial(get("/projects/a%2Fc/x")).WantStatus(200)
		f.dial(get("/projects/a%2Fb;1/x")).WantStatus(400)
		for _, path := range []string{"/v1%2Fsend", "/v1/send%2F", "/a%2Fb", "/projects/..%2F..%2Fv1/x", "/projects/a%2F.%2Fb/x", "/projects/a%252Fb/x", "/projects%2Fa/x", "/projects/a%2Fb/y"} {
			f.dial(get(path)).WantStatus(400)
		}
	})
}

// wanting is a request on its way to match.
func wanting(method, host, path string) *exchange {
	x := newExchange().(*exchange)
	x.request.Method, x.request.Host, x.request.Path, x.in.header = method, host, path, http.Header{}
	return x
}

// What careful clients send costs one look and no allocation; see BenchmarkMatch of
// package route for the routes' number.
func TestMatch_CostsNoAllocation(t *testing.T) {
	w := newProxy(t, strings.ReplaceAll(strings.ReplaceAll(careless, "/v1/Search", "/v1/search"), "[A-Z]", "[0-9]"))
	g := w.current.Load()
	for _, path := range []string{"/v1/send", "/other/thing", "/u/4711", "/files/a/b"} {
		x := wanting("GET", "a", path)
		if n := rounds.Allocations(100, func() {
			x.reset()
			x.request.Method, x.request.Host, x.request.SentPath, x.request.Path, x.in.header = "GET", "a", path, path, http.Header(nil)
			if err := g.match(x); err != nil {
				t.Error(err)
			}
		}); n > 0 && !reuse.Poisoned {
			t.Errorf("%s: %v allocations; want none", path, n)
		}
	}
}

// recipes are the configurations below a heading of the reference.
func recipes(t *testing.T, heading string) []string {
	t.Helper()
	text := filetest.Read(t, "docs/listeners.md")
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the reference has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for _, part := range strings.Split(section, "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		all = append(all, block)
	}
	return all
}

// Behind each proxy of the recipes two clients have two counts, whatever they send themselves, and whoever
// comes past the proxy is counted by its own address. check has nothing to say.
func TestRecipes_BehindProxies(t *testing.T) {
	all := recipes(t, "Behind Cloudflare, a load balancer of AWS, or nginx")
	if len(all) != 3 {
		t.Fatalf("%d recipes", len(all))
	}
	for i, c := range []struct{ name, peer, field string }{
		{"Cloudflare", "172.70.1.2:1", "CF-Connecting-IP"},
		{"an Application Load Balancer", "10.0.3.4:1", "X-Forwarded-For"},
		{"nginx", "127.0.0.1:1", "X-Forwarded-For"},
	} {
		p := newProxy(t, strings.Replace(all[i], "10/1s", "2/1h", 1))
		if _, served := p.Serving(); len(served.Warnings)+len(served.Notes()) > 0 {
			t.Errorf("%s: %v %v", c.name, served.Warnings, served.Notes())
		}
		from := func(peer, client string, want int) {
			t.Helper()
			r := httptest.NewRequest("GET", "http://a.example/a", nil)
			r.RemoteAddr = peer
			r.Header.Set(c.field, client)
			r.Header.Set("X-Forwarded-Proto", "https")
			if peer != c.peer && p.current.Load().config.Listen.RedirectHTTPS {
				want = 308 // a stranger's X-Forwarded-Proto counts for nothing
			}
			if got := weirtest.Exchange(p, r).Code; got != want {
				t.Errorf("%s: from %s for %s: %d; want %d", c.name, peer, client, got, want)
			}
		}
		for _, want := range []int{200, 200, 429} {
			from(c.peer, "198.51.100.7", want)
		}
		from(c.peer, "198.51.100.8", 200)
		if c.field == "X-Forwarded-For" {
			from(c.peer, "192.0.2.99, 198.51.100.7", 429) // the client has written the first
		}
		for n, want := range []int{200, 200, 429} {
			from("203.0.113.5:1", "192.0.2."+string(rune('1'+n)), want)
		}
	}
}

// A route that refuses all requests also gets those that an upstream could take for one of its own, in another case for
// example, and not the route for all the rest. One that refuses all the rest takes nothing from the others.
func TestMatch_RefusingRouteIsNotSpelledAround(t *testing.T) {
	url := startUpstream(t, func(http.ResponseWriter, *http.Request) {})
	w := newProxy(t, `
routes:
  - {match: {path: /internal/*}, respond: {status: 404}}
  - {match: {path: /secret}, respond: {status: 403}}
  - {match: {path: /form, methods: [GET]}, respond: {status: 405}}
  - {match: {path: /ok}, respond: {body: ok}}
  - {match: {path: /*}, upstream: "`+url+`"}
  - {match: {path: /limited/*, host: strict.example}, upstream: "`+url+`", limits: [{key: client_ip, rate: 1000/1m}]}
  - {match: {path: /*, host: strict.example}, respond: {status: 404}}
  - {match: {path: /limited, host: two.example}, upstream: "`+url+`", limits: [{key: client_ip, rate: 1000/1m}]}
  - {match: {path: /limited/*, host: two.example}, respond: {status: 403}}
`)
	for request, want := range map[string]int{
		"GET /internal/x": 404, "GET /INTERNAL/x": 404, "GET /internal": 404, "GET /Internal/": 404, "GET /internal;a/x": 400,
		"GET /secret": 403, "GET /Secret": 403, "GET /secret/": 403, "GET /secret/x": 200, "GET /secrets": 200,
		"HEAD /form": 405, "get /form": 405, "POST /form": 200, "GET /OK": 200, "GET /else": 200,
		"GET http://strict.example/limited/x": 200, "GET http://strict.example/LIMITED/x": 200, "GET http://strict.example/limited": 200, "GET http://strict.example/x": 404,
		"GET http://two.example/limited": 200, "GET http://two.example/limited/x": 403, "GET http://two.example/limited/": 400,
	} {
		method, target, _ := strings.Cut(request, " ")
		if got := w.send(method, target).Code; got != want {
			t.Errorf("%s: %d, want %d", request, got, want)
		}
	}
}
