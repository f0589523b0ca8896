package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// closedURL is the URL of a server that is gone.
func closedURL(t testing.TB) string {
	t.Helper()
	return "http://" + sockettest.ClosedAddr(t)
}

// newOrderedPool is a pool whose targets are asked in this order, as each that failed
// a request is not its first choice.
func newOrderedPool(t testing.TB, c Config, urls ...string) *Pool {
	t.Helper()
	for _, u := range urls {
		c.Targets = append(c.Targets, config.Target{URL: mustURL(t, u)})
	}
	return mustPool(t, c)
}

// startCounting answers with the body it got and counts how often it was asked.
func startCounting(t testing.TB) (url string, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	return startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.Copy(w, r.Body)
	}), asked
}

func TestRetry_UnsentRequests(t *testing.T) {
	alive, asked := startCounting(t)
	for i, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
	} {
		p := newOrderedPool(t, Config{Upstream: config.Upstream{Retries: 1}}, closedURL(t), alive) // its first turn is nobody's
		h := startProxy(t, p, nil)
		_, r := h.dial(t, request)
		res, err := http.ReadResponse(r, nil)
		for err == nil && res.StatusCode == http.StatusContinue {
			res, err = http.ReadResponse(r, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		want := ""
		if i > 0 {
			want = "body"
		}
		if got := h.result(t); res.StatusCode != 200 || string(body) != want || got.Kind != OK || got.Retries != 1 || got.Target != alive {
			t.Errorf("%s: %s %q, result %+v", request, res.Status, body, got)
		}
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("asked %d times, want once for each", n)
	}
}

func TestRetry_Resets(t *testing.T) {
	for _, c := range []struct {
		name, request, answer string
		want                  ResultKind
		retries               int
	}{
		{"idempotent", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", OK, 1},
		{"not idempotent", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "", ConnectionReset, 0},
		{"its body has been read", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("body", 25_000), "", ConnectionReset, 0},
		{"its body was short", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody", "", OK, 1},
		{"bytes came back", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\n", ConnectionReset, 0},
		{"nonsense came back", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "hello\r\n\r\n", BadResponse, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := rawBackend(t, func(conn net.Conn, r *bufio.Reader) {
				head := readHead(r)
				if strings.HasPrefix(head, "PUT") {
					_, _ = io.CopyN(io.Discard, r, 4)
				}
				_, _ = io.WriteString(conn, c.answer)
			})
			alive, asked := startCounting(t)
			h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{Retries: 1}}, bad, alive), nil)
			h.ask(t, c.request)
			if got := h.result(t); got.Kind != c.want || got.Retries != c.retries || int(asked.Load()) != c.retries {
				t.Errorf("result %+v, the other was asked %d times; want kind %d and %d retries", got, asked.Load(), c.want, c.retries)
			}
		})
	}
}

// When a target may have seen the request, the failure of another after it does
// not hide that.
func TestRetry_ReportsErrorOfTargetThatMayHaveReceivedIt(t *testing.T) {
	bad := rawBackend(t, func(_ net.Conn, r *bufio.Reader) { readHead(r) })
	h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{Retries: 5}}, bad, closedURL(t)), nil)
	h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := h.result(t); got.Kind != ConnectionReset || got.Retries != 5 {
		t.Errorf("result %+v, want Reset after 5 retries", got)
	}
}

func TestRetry_WithinTheBudget(t *testing.T) {
	h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{Retries: 3}}, closedURL(t)), nil)
	retries := 0
	for range 100 {
		h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		got := h.result(t)
		if got.Kind != ConnectFailed {
			t.Fatalf("result %+v", got)
		}
		retries += got.Retries
	}
	if retries < 28 || retries > 30 {
		t.Errorf("%d retries of 100 requests, want a fifth and the reserve of 10", retries)
	}
}

func TestHealth_AllEjectedTargetsAreUsed(t *testing.T) {
	p := newOrderedPool(t, Config{Upstream: config.Upstream{Health: config.Health{After: 1, Rest: 1 << 60}}}, closedURL(t), closedURL(t))
	h := startProxy(t, p, nil)
	for range 4 {
		h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := h.result(t); got.Kind != ConnectFailed || got.Target == "" {
			t.Errorf("result %+v, want that one was asked", got)
		}
	}
	if states := preferred(p); states[0] || states[1] {
		t.Errorf("states %v", states)
	}
}

// A client that leaves while a connection is being made is not the target's fault.
func TestHealth_ClientGoneIsNotCounted(t *testing.T) {
	release := make(chan bool)
	defer close(release)
	deaf := strings.Replace(rawBackend(t, func(net.Conn, *bufio.Reader) { <-release }), "http:", "https:", 1)
	p := newOrderedPool(t, Config{Upstream: config.Upstream{Health: config.Health{After: 1, Rest: 1 << 60}, Timeouts: config.Timeouts{Connect: testTimeout}}}, deaf)
	h := startProxy(t, p, nil)
	c, _ := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	await.Until(t, "the request is under way", func() bool { return p.load() == 1 })
	c.Close()
	if got := h.result(t); got.Kind != ClientGone {
		t.Errorf("result %+v", got)
	}
	if !preferred(p)[0] {
		t.Error("the target rests")
	}
}

// load is how many requests are under way.
func (p *Pool) load() (n int) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	for _, m := range p.backends {
		n += int(m.inFlight.Sum())
	}
	return n
}

func TestHealthCheck_OnRealSockets(t *testing.T) {
	var status atomic.Int32
	status.Store(503)
	seen := make(chan string, 100)
	flaky := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(int(status.Load()))
			select {
			case seen <- r.Host + " " + r.UserAgent():
			default:
			}
		}
	})
	health := config.Health{After: 1, Rest: 1, Path: "/healthz", Interval: 1e6, Timeout: testTimeout}
	p := newOrderedPool(t, Config{Upstream: config.Upstream{Health: health}}, flaky)
	p.Start()
	h := startProxy(t, p, nil)
	await.Until(t, "the target is out", func() bool { return !preferred(p)[0] })
	h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := h.result(t); got.Kind != NoTarget || got.Target != "" {
		t.Errorf("result %+v, want that nobody was asked", got)
	}
	if got, want := await.Value(t, seen, "look"), strings.TrimPrefix(flaky, "http://")+" weir-health"; got != want {
		t.Errorf("the target sees %q, want %q", got, want)
	}
	status.Store(204)
	await.Until(t, "the target is back", func() bool { return preferred(p)[0] })
	h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := h.result(t); got.Kind != OK {
		t.Errorf("result %+v", got)
	}
	p.Retire() // ends the looks: goleak sees to that
}

func TestHealthCheck_AcceptedStatuses(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, c := range []struct {
		good config.Statuses
		want bool
	}{{config.Statuses{}, false}, {statuses(t, "418"), true}} {
		p := newOrderedPool(t, Config{Upstream: config.Upstream{Health: config.Health{After: 1, Path: "/", Interval: 1, Timeout: 1, Status: c.good}}}, url)
		if err := p.probe(t.Context(), p.backends[0]); (err == nil) != c.want {
			t.Errorf("look: %v, want good %v", err, c.want)
		}
		p.Close()
	}
	p := newOrderedPool(t, Config{Upstream: config.Upstream{Health: config.Health{After: 1, Path: "/", Interval: 1, Timeout: 1}}}, closedURL(t))
	defer p.Close()
	if p.probe(t.Context(), p.backends[0]) == nil {
		t.Error("a target that is gone passes the look")
	}
}

// A target goes through all conditions, and tells what it works on.
func TestTargetStandings_OfRecoveringTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := config.Health{After: 2, Rest: 10 * time.Second, SlowStart: 10 * time.Second, Path: "/", Interval: time.Second, Timeout: time.Second}
		p := newTestPool(t, Config{Upstream: config.Upstream{Health: h, MaxConnections: 1, Queue: config.Queue{Length: 1, Timeout: time.Minute}}}, 2)
		is := func(want string) view.TargetStanding {
			t.Helper()
			all, _ := p.TargetStandings()
			if len(all) != 1 || all[0].State != want || all[0].Target != "http://a" || all[0].Weight != 2 {
				t.Fatalf("standings are %+v, want %s", all, want)
			}
			return all[0]
		}
		m := p.backends[0]
		is(view.Healthy)
		p.group.recordConnect(m, &h, false)
		if s := is(view.Healthy); s.FailedConnects != 1 {
			t.Errorf("after a failure %+v", s)
		}
		p.group.recordConnect(m, &h, false)
		if s := is(view.Ejected); !s.EjectedUntil.After(time.Now()) {
			t.Errorf("ejected until %v", s.EjectedUntil)
		}
		time.Sleep(13 * time.Second) // a quarter longer at most
		if s := is(view.Probing); !s.EjectedUntil.IsZero() {
			t.Errorf("a target that may be asked is ejected until %v", s.EjectedUntil)
		}
		p.group.recordConnect(m, &h, true)
		if s := is(view.SlowStart); s.Share >= 1 || s.FailedConnects != 0 {
			t.Errorf("back with %+v, want a part of its share", s)
		}
		time.Sleep(10 * time.Second)
		is(view.Healthy)
		p.group.recordCheck(m, &h, false)
		p.group.recordCheck(m, &h, false)
		if s := is(view.Unhealthy); s.FailedChecks != 2 {
			t.Errorf("after two bad checks %+v", s)
		}
		p.group.recordCheck(m, &h, true)
		if _, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil {
			t.Fatal(err)
		}
		go p.acquire(t.Context(), time.Now(), selection{})
		synctest.Wait()
		if all, waiting := p.TargetStandings(); all[0].InFlight != 1 || waiting != 1 {
			t.Errorf("standings are %+v with %d waiting, want one request under way and one that waits", all, waiting)
		}
		p.group.release(m, 0)
		synctest.Wait()
	})
}
