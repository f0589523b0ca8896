package proxy

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/limiter"
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
		for range 5 {
			w.sends(200, "GET", "/a", "X-User: alice") // one after the other is one at a time
		}
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
	if got := s.status(5); got != "429" {
		t.Errorf("status %s; want 429 while the upstream works on two requests", got)
	}
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
