package decide

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/sockettest"
)

const routes = `
keys: {phone: {from: header:X-Phone, set_header: X-Phone}}
routes:
  - {name: send, match: {path: /send}, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h}]}
  - {name: address, match: {path: /address}, limits: [{name: address, key: client_ip, rate: 1/1h}]}
  - {name: query, match: {methods: [POST], host: api.example.com, path: "/query/{id}"}, limits: [{name: query, key: "query:phone", rate: 1/1h}]}
  - {name: secure, match: {path: /secure, scheme: https}, limits: [{name: address, key: client_ip, rate: 1/1h}]}
  - {name: challenged, match: {path: /challenged}, limits: [{name: address, key: client_ip, rate: 1/1h, step_up: {challenge: sms, rate: 1/1h, jwt: {secret: "a secret for tokens of challenges"}}}]}
`

// jsonRoute is a route for dialects that send bodies.
const jsonRoute = `  - {name: json, match: {path: /json}, limits: [{name: json, key: "json:/phone", rate: 1/1h}]}
`

// A listener is a Handler that listens.
type listener struct {
	*testing.T
	*Handler
	url string
}

// listen makes a listener. Store is shared by those of one test; decide are the fields of listen.decide.
func listen(t *testing.T, store limiter.AdminStore, decide string) *listener {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	text := "listen: {http: none, decide: {http: '127.0.0.1:8082', " + decide + "}}\n" + routes
	if strings.Contains(decide, "haproxy") || strings.Contains(decide, "apisix") {
		text += jsonRoute
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	p, err := proxy.New(t.Context(), proxy.Options{Config: c, Store: store, Registry: r, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	h := New(p, *c.Listen.Decide, r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http1.Server{Handler: h.ServeHTTP1}
	go sockettest.Accept(l, s.ServeConn)
	t.Cleanup(func() { l.Close(); s.Close() })
	return &listener{t, h, "http://" + l.Addr().String()}
}

func memory() *limiter.Memory { return limiter.NewMemory(limiter.MemoryOptions{}) }

// A reply is what a peer gets.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with "Name: value" lines. A line that begins with a brace is the body.
func (l *listener) ask(method, target string, lines ...string) reply {
	l.Helper()
	var body io.Reader
	r, err := http.NewRequest(method, l.url+target, nil)
	if err != nil {
		l.Fatal(err)
	}
	for _, line := range lines {
		if line[0] == '{' {
			body = io.MultiReader(strings.NewReader(line)) // of unknown length, so it is sent in chunks
			r.Body = io.NopCloser(body)
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		l.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		l.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, string(text)}
}

// asked are the lines by which a peer of a dialect asks about a request of 192.0.2.1.
func asked(d dialect, target string, lines ...string) []string {
	return append([]string{d.method + ": POST", d.target + ": " + target, d.host + ": api.example.com", "X-Forwarded-Proto: https", "X-Forwarded-For: 192.0.2.1"}, lines...)
}

func TestDecide_EachDialectChallenges(t *testing.T) {
	for _, d := range dialects() {
		l := listen(t, memory(), "dialect: "+string(d.name))
		l.ask("GET", "/decide", asked(d, "/challenged")...)
		got := l.ask("GET", "/decide", asked(d, "/challenged")...)
		text, status := got.body, "403"
		if d.prefix != "" {
			text, status = got.header.Get(d.prefix+"Body"), got.header.Get(d.prefix+"Status")
		}
		var problem struct{ Challenge string }
		if err := json.Unmarshal([]byte(text), &problem); got.status != 403 || status != "403" || err != nil || problem.Challenge != "sms" {
			t.Errorf("%s: %d %v %s, %v; want 403 and the challenge sms", d.name, got.status, got.header, text, err)
		}
	}
}

func TestDecide_EachDialectAllowsAndRefuses(t *testing.T) {
	for _, d := range dialects() {
		t.Run(string(d.name), func(t *testing.T) {
			l := listen(t, memory(), "dialect: "+string(d.name))
			for i, path := range []string{"/decide", "/decide/" + string(d.name), "/decide"} {
				got := l.ask("GET", path, asked(d, "/send?a=b", "X-Phone: +8613800138000")...)
				refused, status := i == 2, 200
				switch {
				case refused && d.prefix != "":
					status = 403
				case refused:
					status = 429
				}
				if got.status != status || got.header.Get(d.prefix+"RateLimit") == "" || got.header.Get(d.prefix+"RateLimit-Policy") == "" {
					t.Errorf("%d: %d with %v; want %d and the rate limit fields", i, got.status, got.header, status)
				}
				if (got.header.Get(d.prefix+"Retry-After") != "") != refused || (got.header.Get(handleField) == "") != refused {
					t.Errorf("%d: %v", i, got.header)
				}
				text := got.body
				if d.prefix != "" && refused {
					if got.body != "" || got.header.Get("X-Weir-Status") != "429" {
						t.Errorf("%d with %q", got.status, got.body)
					}
					text = got.header.Get("X-Weir-Body")
				}
				if refused != json.Valid([]byte(text)) {
					t.Errorf("%d: the body is %q", i, text)
				}
			}
		})
	}
}

func TestDecide_ReadsTheRequestOfTheClient(t *testing.T) {
	nginx := dialects()[0]
	l := listen(t, memory(), "dialect: nginx")
	for _, c := range []struct {
		what, want string
		lines      []string
	}{
		{"first address", "200", asked(nginx, "/address")},
		{"again", "429", asked(nginx, "/address")},
		{"the client's own address does not count", "429", append(asked(nginx, "/address")[:4:4], "X-Forwarded-For: 198.51.100.7, 192.0.2.1")},
		{"another client", "200", append(asked(nginx, "/address")[:4:4], "X-Forwarded-For: 198.51.100.7", "X-Forwarded-For: [2001:db8::1]:80")},
		{"path, query and method", "200", asked(nginx, "/query/1?phone=7", "Content-Type: application/json")},
		{"one count", "429", asked(nginx, "/query/2?phone=7", "Content-Type: application/json")},
		{"perhaps a form, in which servers look for the key too", "400", asked(nginx, "/query/2?phone=9")},
		{"two values", "400", asked(nginx, "/query/1?phone=7&phone=8")},
		{"scheme", "200", asked(nginx, "/secure")},
		{"no route without TLS", "404", append(asked(nginx, "/secure")[:3:3], "X-Forwarded-Proto: https, http", "X-Forwarded-For: 192.0.2.1")},
		{"scheme of a WebSocket", "200", append(asked(nginx, "/secure")[:3:3], "X-Forwarded-Proto: wss", "X-Forwarded-For: 192.0.2.9")},
		{"no scheme", "404", append(asked(nginx, "/secure")[:3:3], "X-Forwarded-For: 192.0.2.1")},
		{"no such route", "404", asked(nginx, "/none")},
		{"no key", "400", asked(nginx, "/send")},
		{"target twice", "400", asked(nginx, "/send", "X-Phone: 1", "X-Original-URI: /other")},
		{"no address", "400", asked(nginx, "/send", "X-Phone: 1")[:4]},
		{"no method", "400", append(asked(nginx, "/send")[1:], "X-Phone: 1")},
		{"no target", "400", asked(nginx, "send", "X-Phone: 1")},
	} {
		got := l.ask("GET", "/decide", c.lines...)
		status := got.header.Get("X-Weir-Status")
		if status != c.want || (got.status == 200) != (c.want == "200") || got.status != 200 && got.status != 403 {
			t.Errorf("%s: %d, %s for the client; want %s\n%s", c.what, got.status, status, c.want, got.header.Get("X-Weir-Body"))
		}
	}
}

func TestDecide_BodyInChunks(t *testing.T) {
	haproxy := dialects()[1]
	l := listen(t, memory(), "dialect: haproxy")
	for _, want := range []struct {
		body   string
		status int
	}{{`{"phone": "1"}`, 200}, {`{"phone": "1"}`, 429}, {`{"phone": "2"}`, 200}, {`{}`, 400}} {
		if got := l.ask("POST", "/decide", asked(haproxy, "/json", "Content-Type: application/json", want.body)...); got.status != want.status {
			t.Errorf("%s: %d; want %d\n%s", want.body, got.status, want.status, got.body)
		}
	}
	got := l.ask("POST", "/decide/nginx", asked(dialects()[0], "/json", "Content-Type: application/json", `{"phone": "3"}`)...)
	if got.status != 403 || got.header.Get("X-Weir-Status") != "400" {
		t.Errorf("a body that nginx never sends: %d with %v", got.status, got.header)
	}
}

func TestDecide_OnlyTrustedPeersAreAnswered(t *testing.T) {
	haproxy := dialects()[1]
	send := asked(haproxy, "/send", "X-Phone: 1")
	const token = "0123456789abcdef"
	for _, c := range []struct {
		decide string
		status int
		lines  []string
	}{
		{"dialect: haproxy", 200, nil},
		{"dialect: haproxy, trusted: [127.0.0.0/8]", 200, nil},
		{"dialect: haproxy, trusted: [192.0.2.0/24]", 403, nil},
		{"dialect: haproxy, token: " + token, 403, nil},
		{"dialect: haproxy, token: " + token, 403, []string{"X-Weir-Token: " + token + "0"}},
		{"dialect: haproxy, token: " + token, 403, []string{"X-Weir-Token: " + token, "X-Weir-Token: " + token}},
		{"dialect: haproxy, token: " + token, 200, []string{"X-Weir-Token: " + token}},
		{"dialect: haproxy, trusted: [192.0.2.0/24], token: " + token, 403, []string{"X-Weir-Token: " + token}},
	} {
		l := listen(t, memory(), c.decide)
		if got := l.ask("GET", "/decide", append(send[:len(send):len(send)], c.lines...)...); got.status != c.status {
			t.Errorf("%s %v: %d; want %d", c.decide, c.lines, got.status, c.status)
		}
		if got := l.ask("POST", "/decide/outcome?handle=a&status=500", c.lines...); got.status != 403 {
			t.Errorf("%s: outcome %d; want 403", c.decide, got.status)
		}
	}
}

// allowedHandle asks about a request that is allowed, and returns its handle.
func (l *listener) allowedHandle() string {
	l.Helper()
	got := l.ask("GET", "/decide", asked(dialects()[1], "/send", "X-Phone: 1")...)
	if got.status != 200 || got.header.Get(handleField) == "" {
		l.Fatalf("%d with %v; want a handle", got.status, got.header)
	}
	return got.header.Get(handleField)
}

// wants asks and wants this status.
func (l *listener) wants(status int, method, target string, lines ...string) {
	l.Helper()
	if got := l.ask(method, target, lines...); got.status != status {
		l.Errorf("%s %s %v: %d; want %d\n%s", method, target, lines, got.status, status, got.body)
	}
}

func TestOutcome_RefundsOnceOnAnyNode(t *testing.T) {
	store := memory()
	const decide = "dialect: haproxy, secret: 0123456789abcdef"
	a, b := listen(t, store, decide), listen(t, store, decide)
	send := asked(dialects()[1], "/send", "X-Phone: 1")
	first, second := a.allowedHandle(), a.allowedHandle()
	b.wants(429, "GET", "/decide", send...)
	b.wants(204, "POST", "/decide/outcome", "Content-Type: application/json", `{"handle": "`+first+`", "status": 503}`)
	a.wants(409, "POST", "/decide/outcome?status=503&handle="+first)
	a.wants(204, "POST", "/decide/outcome?status=200&handle="+second)
	b.wants(409, "POST", "/decide/outcome?status=500&handle="+second)
	b.wants(200, "GET", "/decide", send...)
	b.wants(429, "GET", "/decide", send...)
	for _, query := range []string{"", "?handle=" + first, "?status=500", "?handle=" + first + "&status=99", "?handle=%zz&status=200"} {
		a.wants(400, "POST", "/decide/outcome"+query)
	}
	a.wants(405, "GET", "/decide/outcome?status=500&handle="+first)
	a.wants(404, "GET", "/other")
	a.wants(404, "GET", "/decide/apache", send...)
}

func TestOutcome_ForgedAndExpiredChangeNothing(t *testing.T) {
	l := listen(t, memory(), "dialect: haproxy")
	handle := l.allowedHandle()
	others, _, _ := l.signer.open(l.allowedHandle())
	pendings, _, err := l.signer.open(handle)
	if err != nil || len(pendings) != 1 {
		t.Fatal(len(pendings), err)
	}
	pending, soon := pendings[0], time.Now().Add(time.Hour)
	flipped := []byte(handle)
	flipped[20] ^= 1
	for forged, want := range map[string]int{
		string(flipped): 403, handle[:len(handle)-4]: 403, handle + "AAAA": 403, "": 400, "AAAA": 403,
		signer{[]byte("another")}.sign(pendings, soon):                                403,
		l.signer.sign(others, time.Now().Add(-time.Second)):                           410,
		l.signer.sign([][]byte{[]byte("nothing")}, soon):                              410,
		l.signer.sign([][]byte{append(pending[:len(pending):len(pending)], 0)}, soon): 410,
		l.signer.sign([][]byte{pending[:len(pending)-1]}, soon):                       410,
	} {
		if got := l.ask("POST", "/decide/outcome?status=500&handle="+forged); got.status != want {
			t.Errorf("%s: %d; want %d", forged, got.status, want)
		}
	}
	if got := l.ask("GET", "/decide", asked(dialects()[1], "/send", "X-Phone: 1")...); got.status != 429 {
		t.Errorf("after forged outcomes: %d; want 429", got.status)
	}
	if got := l.ask("POST", "/decide/outcome?status=500&handle="+handle); got.status != 204 {
		t.Errorf("true handle: %d; want 204", got.status)
	}
}

// The nodes that share a store have clocks of their own, which may differ by more than an outcome may be late: the store's decides
// whether it is, also when what it knows of an earlier report is forgotten.
func TestOutcome_IsLateByTheClockOfTheStore(t *testing.T) {
	ahead := new(atomic.Int64)
	store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	const decide = "dialect: haproxy, secret: 0123456789abcdef"
	a, b := listen(t, store, decide), listen(t, store, decide)
	for _, hours := range []time.Duration{-2, 0, 2} {
		ahead.Store(int64(hours * time.Hour))
		first, second := a.allowedHandle(), a.allowedHandle()
		ahead.Add(int64(59 * time.Second))
		b.wants(204, "POST", "/decide/outcome?status=503&handle="+first)
		b.wants(409, "POST", "/decide/outcome?status=503&handle="+first)
		ahead.Add(int64(61 * time.Second))
		for range 2 {
			a.wants(410, "POST", "/decide/outcome?status=503&handle="+first)
			b.wants(410, "POST", "/decide/outcome?status=503&handle="+second)
		}
	}
}
