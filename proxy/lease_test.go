package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
)

func TestHold_BoundsWhatIsUnderWay(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		came, let := make(chan struct{}), make(chan struct{})
		w := newProxy(t, upstreamYAML(t, slowHandler(came, let), `limits: [{name: inflight, key: header:X-User, concurrent: 2}, {name: all, key: global, rate: 100/1h}]`), use)
		var under sync.WaitGroup
		for range 2 {
			under.Go(func() { w.sends(200, "GET", "/a", "X-User: alice") })
			<-came
		}
		rec := w.sends(429, "GET", "/a", "X-User: alice")
		w.hasField(rec, "RateLimit-Policy", `"inflight";q=2;qu="concurrent-requests", "all";q=100;w=3600`)
		if got, want := rec.Header().Get("RateLimit"), `"inflight";r=0;t=1, "all";r=98`; !strings.HasPrefix(got, want) {
			t.Errorf("RateLimit = %s; want %s", got, want)
		}
		if got := rec.Header().Get("Retry-After"); got != "1" && got != "2" {
			t.Errorf("Retry-After = %s; want soon, for what is under way may end at any moment", got)
		}
		close(let)
		go func() {
			for range came {
			}
		}()
		defer close(came)
		under.Wait()
		w.sendsAll(times(5, 200), "GET", "/a", "X-User: alice") // one after the other is one at a time
		w.counted(0, w.metrics.Refunds.WithLabelValues("a", "inflight"))
	})
}

// A target that fails holds nothing any longer, nor does a client that leaves before anything was sent
// to a target, or after the response has begun.
func TestHold_EndsWithTheRequest(t *testing.T) {
	let := make(chan struct{})
	defer close(let)
	began := upstreamYAML(t, slowHandler(nil, let), `limits: [{name: l, key: global, concurrent: 1}]`)
	refused := "routes:\n  - {name: a, match: {path: /a}, upstream: 'http://" + sockettest.ClosedAddr(t) + "', limits: [{name: l, key: global, concurrent: 1}]}\n"
	for name, yaml := range map[string]string{"response begun": began, "refused connection": refused} {
		t.Run(name, func(t *testing.T) {
			f := startServer(t, yaml)
			for range 5 {
				c := f.dial("GET /a?begin HTTP/1.1\r\nHost: a\r\n\r\n")
				answer, err := http.ReadResponse(c.Reader, nil)
				if err != nil || answer.StatusCode == http.StatusTooManyRequests {
					t.Fatalf("%v, %v; want that nothing is held", answer, err)
				}
				reset(c)
				f.until(func() bool { return f.inUse() == 0 })
			}
		})
	}
}

// inUse returns how many permits of the limit l of route a are taken.
func (p *testProxy) inUse() int64 {
	p.Helper()
	l := p.current.Load().routes[0].Windows[0].Limit
	return l.Capacity() - p.peeks(p.admitter.Store, limiter.Claim{Limit: &l, Key: p.current.Load().config.Privacy.Hash([]string{"global", ""}), Cost: 1})
}

// A busyUpstream works on each request until it is told to end, whether or not its client is there.
type busyUpstream struct {
	working, most, came atomic.Int64
	end                 chan struct{}
}

func (u *busyUpstream) ServeHTTP(http.ResponseWriter, *http.Request) {
	u.came.Add(1)
	now := u.working.Add(1)
	defer u.working.Add(-1)
	for most := u.most.Load(); now > most && !u.most.CompareAndSwap(most, now); most = u.most.Load() {
	}
	<-u.end
}

// reset ends a connection abruptly.
func reset(c *sockettest.Client) {
	_ = c.Conn.(*net.TCPConn).SetLinger(0) // makes Close abrupt
	c.Close()
}

// A client that sends and leaves, again and again, makes the upstream work on no more requests at a
// time than the limit allows.
func TestHold_ClientLeavesUpstreamWorking(t *testing.T) {
	u := &busyUpstream{end: make(chan struct{})}
	f := startServer(t, upstreamYAML(t, u.ServeHTTP, `limits: [{name: l, key: global, concurrent: 2}]`))
	t.Cleanup(func() { close(u.end) }) // before the upstream ends
	for i := range 2 {
		c := f.dial("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
		f.until(func() bool { return u.came.Load() == int64(i+1) })
		reset(c)
		f.until(func() bool { return len(f.lines("request")) == i+1 })
	}
	for range 20 {
		f.dial("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(429)
		reset(f.dial("GET /a HTTP/1.1\r\nHost: a\r\n\r\n"))
	}
	f.until(func() bool { return len(f.lines("request")) >= 22 })
	if u.most.Load() != 2 || u.came.Load() != 2 || f.inUse() != 2 {
		t.Errorf("the upstream worked on %d at a time, %d in all, %d permits are held; want 2", u.most.Load(), u.came.Load(), f.inUse())
	}
	f.drain() // a request that comes after Close would take what Close returns
	f.Proxy.Close()
	if f.inUse() != 0 {
		t.Errorf("%d permits are held after Close", f.inUse())
	}
}

// So does a client whose body fails: an upstream that does not read it may go on working.
func TestHold_BodyFailsUpstreamWorking(t *testing.T) {
	for name, rest := range map[string]string{"not valid": "x\r\n", "too large": "5\r\nabcde\r\n", "late": ""} {
		t.Run(name, func(t *testing.T) {
			u := &busyUpstream{end: make(chan struct{})}
			f := startServer(t, "listen: {timeouts: {body: 100ms}}\n"+upstreamYAML(t, u.ServeHTTP, `body: {max: 4B}, limits: [{name: l, key: global, concurrent: 2}]`))
			t.Cleanup(func() { close(u.end) }) // before the upstream ends
			for i := range 2 {
				c := f.dial("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
				f.until(func() bool { return u.came.Load() == int64(i+1) })
				c.Send(rest)
				f.until(func() bool { return len(f.lines("request")) == i+1 })
			}
			f.dial("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(429) // while the upstream works on two requests
			if f.inUse() != 2 {
				t.Errorf("%d permits are held; want 2", f.inUse())
			}
		})
	}
}

// A request that could not be written holds nothing: no target has received a part of it.
func TestHold_NothingWritten(t *testing.T) {
	f := startServer(t, upstreamYAML(t, func(http.ResponseWriter, *http.Request) {}, `limits: [{name: l, key: global, concurrent: 1}, {key: "json:/a", rate: 5/1h, mode: shadow}]`))
	for range 2 {
		long := strings.Repeat("x", 100<<10)
		f.dial(fmt.Sprintf("POST /a HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long)).WantStatus(413)
	}
	if f.inUse() != 0 {
		t.Errorf("%d permits are held; want none", f.inUse())
	}
}

// So does a client of HTTP/2 that resets its streams.
func TestHold_StreamsResetUpstreamWorking(t *testing.T) {
	u := &busyUpstream{end: make(chan struct{})}
	f := startServer(t, cleartext+"\n"+upstreamYAML(t, u.ServeHTTP, `limits: [{name: l, key: global, concurrent: 2}]`))
	t.Cleanup(func() { close(u.end) }) // before the upstream ends
	s := f.speaks()
	for i := range uint32(2) {
		s.asks(2*i+1, request("GET", "/a")...)
		f.until(func() bool { return u.came.Load() == int64(i+1) })
		if err := s.WriteRSTStream(2*i+1, http2.ErrCodeCancel); err != nil {
			t.Fatal(err)
		}
		f.until(func() bool { return len(f.lines("request")) == int(i+1) })
	}
	s.asks(5, request("GET", "/a")...)
	s.wants(5, "429") // while the upstream works on two requests
}

// A client that leaves while its request waits for a connection holds nothing.
func TestHold_ClientLeavesTheQueue(t *testing.T) {
	u := &busyUpstream{end: make(chan struct{})}
	s := startUpstream(t, u.ServeHTTP)
	defer close(u.end)
	f := startServer(t, "upstreams: {u: {targets: ['"+s+"'], max_connections: 1, queue: {length: 5, timeout: 1m}}}\nroutes:\n  - {name: a, match: {path: /a}, upstream: u, limits: [{name: l, key: global, concurrent: 2}]}\n")
	f.dial("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
	f.until(func() bool { return u.came.Load() == 1 })
	for range 3 {
		c := f.dial("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
		f.until(func() bool { return f.inUse() == 2 })
		reset(c)
		f.until(func() bool { return f.inUse() == 1 })
	}
}

// The permits return timeouts.response after the clients have left, each one.
func TestHold_ReturnsAfterTheResponseTimeout(t *testing.T) {
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		u := &busyUpstream{end: make(chan struct{})}
		s := startUpstream(t, u.ServeHTTP)
		defer close(u.end)
		f := startServer(t, "upstreams: {u: {targets: ['"+s+"'], timeouts: {response: 50ms}}}\nroutes:\n  - {name: a, match: {path: /a}, upstream: u, limits: [{name: l, key: global, concurrent: 2}]}\n", use)
		for i := range int64(40) {
			f.until(func() bool { // refused while the permits are held
				reset(f.dial("GET /a HTTP/1.1\r\nHost: a\r\n\r\n"))
				return u.came.Load() > i
			})
		}
		f.until(func() bool { return f.inUse() == 0 })
	})
}

// Two nodes that take permits ahead grant as many as the rate allows together, also beside a limit that is asked each time, and
// whatever becomes of the requests; what one has left when it closes, the other has. Explain says so.
func TestAhead_TwoNodesGrantTheRate(t *testing.T) {
	const yaml = `
upstreams: {up: {targets: [{url: "URL"}]}}
routes:
  - match: {path: /alone}
    respond: {body: ok}
    limits: [{name: all, key: global, rate: 200/1h, lease: 1m}]
  - match: {path: /beside}
    respond: {body: ok}
    limits:
      - {name: all, key: global, rate: 200/1h, lease: 1m}
      - {name: each, key: client_ip, rate: 150/1h}
      - {name: told, key: global, rate: 10/1h, mode: shadow}
  - match: {path: /fails}
    upstream: up
    refund_on: {status: [5xx]}
    limits: [{name: all, key: global, rate: 200/1h, lease: 1m}]
  - match: {path: /closed}
    respond: {body: ok}
    limits: [{name: all, key: global, rate: 200/1h, lease: 1m}]
`
	url := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	near, far := nodes(t, strings.Replace(yaml, "URL", url, 1), redisstore.ClientConfig{Addrs: []string{redistest.Start(t).Addr}})
	for path, want := range map[string]int{"/alone": 200, "/beside": 150, "/fails": 200} {
		passed := 0
		for range 250 {
			for _, p := range []*testProxy{near, far} {
				if rec := p.send("GET", path); rec.Code != http.StatusTooManyRequests {
					if passed++; passed == 1 && !strings.Contains(rec.Header().Get("RateLimit"), fmt.Sprint("r=", want-1)) {
						t.Errorf("%s: RateLimit %q of the first, want %d left", path, rec.Header().Get("RateLimit"), want-1)
					}
				} else if rec.Header().Get("Retry-After") == "" {
					t.Errorf("%s: refused without Retry-After", path)
				}
			}
		}
		if passed != want {
			t.Errorf("%s: %d passed, want %d", path, passed, want)
		}
	}
	near.sendsAll(times(20, 200), "GET", "/closed")
	var calls int
	_, count, _ := strings.Cut(near.scrape("text/plain"), `weir_store_duration_seconds_count{operation="take"} `)
	fmt.Sscan(count, &calls)
	if calls == 0 || calls > 600 {
		t.Errorf("%d of 770 decisions are counted as calls of the store", calls)
	}
	near.admitter.Close()
	passed := 0
	for far.send("GET", "/closed").Code == http.StatusOK {
		passed++
	}
	if passed != 200-20 {
		t.Errorf("%d passed on another node after one with 20 has closed, want %d", passed, 200-20)
	}
	e := near.explains("GET", "/alone")
	if window := e.Limits[0].Windows[0]; window.Rate != "200/1h" {
		t.Errorf("explain says %q, want the rate as it is written", window.Rate)
	}
	if facts := e.Limits[0].Facts(e.Limits[0].Windows[0]); !slices.ContainsFunc(facts, func(f string) bool { return strings.HasPrefix(f, "taken ahead for 1m") }) {
		t.Errorf("explain says %q", facts)
	}
}

// What operators are shown of a rate is as it is written, not as the store counts it.
func TestAhead_RatesAreShownAsWritten(t *testing.T) {
	const yaml = `
alerts: {webhook: "http://127.0.0.1:1/"}
routes:
  - {name: told, match: {path: /told}, respond: {body: ok}, limits: [{name: each, key: client_ip, rate: 100/1h, lease: 1m}]}
`
	w, _ := nodes(t, yaml, redisstore.ClientConfig{Addrs: []string{redistest.Start(t).Addr}})
	w.sendsAll(times(99, 200), "GET", "/told")
	if l := w.stands("client_ip=192.0.2.1")["told.each"]; len(l.Windows) != 1 || l.Windows[0].Rate != "100/1h" {
		t.Errorf("a key stands at %+v", l.Windows)
	}
	if near := w.admitter.NearLimits.Drain(); len(near) != 1 || near[0].Window != "1h" {
		t.Errorf("an alert tells of %+v", near)
	}
}

// inWaitBubble is a proxy in a bubble of its own time, with one route /a.
func inWaitBubble(t *testing.T, limits string, test func(t *testing.T, w *testProxy)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, newProxy(t, "routes:\n  - {name: a, match: {path: /a}, respond: {body: ok}, limits: ["+limits+"]}\n"))
	})
}

// advanceTime lets d go by in a bubble of queueing.
func advanceTime(d time.Duration) { time.Sleep(d) }

// crowd sends n requests, each after the one before waits or has its answer, and
// returns the statuses and times of the answers in the order of the requests.
func (p *testProxy) crowd(n int) []string {
	start, got := time.Now(), make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			rec := p.send("GET", "/a")
			got[i] = fmt.Sprint(rec.Code, " ", time.Since(start))
		})
		synctest.Wait()
	}
	all.Wait()
	return got
}

func (p *testProxy) waits(want ...float64) {
	p.Helper()
	var got []float64
	for _, how := range []string{"passed", "refused", "crowded", "gone"} {
		got = append(got, testutil.ToFloat64(p.metrics.Waits.WithLabelValues("a", "l", how)))
	}
	if !slices.Equal(got, want) {
		p.Errorf("weir_waits_total passed, refused, crowded, gone = %v; want %v", got, want)
	}
	p.counted(0, p.metrics.Waiting.WithLabelValues("a", "l"))
}

// Requests pass as soon as the rate lets them, in the order in which they came;
// whose turn comes too late is refused without waiting. A limit that says nothing of
// waiting refuses at once; of two that do, each is waited for as long as it says.
func TestWait_FirstComeFirstServed(t *testing.T) {
	for _, c := range []struct {
		limits string
		want   []string  // of requests that come together
		then   []string  // of one more
		waits  []float64 // passed, refused, crowded
	}{
		{"{name: l, key: client_ip, rate: 1/100ms, wait: 250ms}",
			[]string{"200 0s", "200 100ms", "200 200ms", "429 200ms", "429 200ms"}, // when it is known that 300 ms is too late
			[]string{"200 100ms"}, []float64{3, 2, 0}},
		{"{name: l, key: client_ip, rate: 1/1s, wait: 250ms}", []string{"200 0s", "429 0s", "429 0s"}, []string{"429 0s"}, []float64{0, 0, 0}},
		{"{name: l, key: client_ip, rate: 1/100ms, wait: 10s, max_waiting: 2}",
			[]string{"200 0s", "200 100ms", "200 200ms", "429 0s", "429 0s"}, []string{"200 100ms"}, []float64{3, 0, 2}},
		{"{name: l, key: client_ip, rate: 1/100ms, wait: 1s}, {name: day, key: client_ip, rate: 2/1d}",
			[]string{"200 0s", "200 100ms", "429 100ms"}, []string{"429 0s"}, []float64{1, 1, 0}},
		{"{name: l, key: client_ip, rate: 1/100ms, wait: 1s}, {name: m, key: client_ip, rate: 2/1s, wait: 500ms}",
			[]string{"200 0s", "200 100ms", "429 100ms"}, []string{"429 0s"}, []float64{1, 1, 0}},
	} {
		inWaitBubble(t, c.limits, func(t *testing.T, w *testProxy) {
			if got, then := w.crowd(len(c.want)), w.crowd(1); !slices.Equal(got, c.want) || !slices.Equal(then, c.then) {
				t.Errorf("%s: answers %v, then %v; want %v, then %v", c.limits, got, then, c.want, c.then)
			}
			w.waits(append(c.waits, 0)...)
		})
	}
}

// Who leaves while waiting has taken nothing.
func TestWait_LeavingTakesNothing(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 10s}", func(t *testing.T, w *testProxy) {
		w.sends(200, "GET", "/a")
		ctx, leave := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		gone.Go(func() {
			serveLoggedUntil(ctx, w.Proxy, LoggedRequest{Method: "GET", Host: "example.com", Target: "/a", Client: netip.MustParseAddr("192.0.2.1")})
		})
		synctest.Wait()
		leave()
		gone.Wait()
		if got, want := w.crowd(2), []string{"200 100ms", "200 200ms"}; !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v", got, want)
		}
		w.waits(2, 0, 0, 1)
		if lines := w.lines("request"); lines[1]["status"] != 499.0 {
			t.Errorf("the log says %v; want 499", lines[1])
		}
	})
}

// A store that fails is not waited for: the policy of each limit decides.
func TestWait_NotForAStoreThatFails(t *testing.T) {
	inWaitBubble(t, "{name: l, key: client_ip, rate: 1/100ms, wait: 10s}", func(t *testing.T, w *testProxy) {
		w.store.fail(limiter.ErrUnavailable)
		if got, want := w.crowd(2), []string{"200 0s", "429 0s"}; !slices.Equal(got, want) {
			t.Errorf("answers %v; want %v, decided in this process", got, want)
		}
	})
}

// Several proxies that share a store keep the rate together while their clients
// wait.
func TestWait_OverASharedStore(t *testing.T) {
	// A busy machine may take its time, and yet no decision is to be left to the fallback.
	slow := func(o *Options) { o.Config.Store, o.Config.Redis.Timeout = config.StoreRedis, time.Minute }
	overEachStore(t, func(t *testing.T, use func(*Options)) {
		w := newProxy(t, "routes:\n  - {name: a, match: {path: /a}, respond: {body: ok}, limits: [{name: l, key: client_ip, rate: 2/200ms, wait: 30s}]}\n", use, slow)
		began := time.Now()
		atOnce(7, func(int) bool { w.sends(200, "GET", "/a"); return true })
		const shortest = 3 * (200 - 1) * time.Millisecond // stores count in whole milliseconds
		if took := time.Since(began); took < shortest {
			t.Errorf("7 requests passed in %v; 2 may in 200 ms", took)
		}
	})
}
