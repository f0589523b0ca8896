package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
)

// newFullPool is a pool of one target that takes one request at a time, which it has.
func newFullPool(t *testing.T, q config.Queue) (*Pool, *backend) {
	t.Helper()
	p := newTestPool(t, Config{Upstream: config.Upstream{MaxConnections: 1, Queue: q}}, 1)
	m, err := p.acquire(t.Context(), time.Now(), selection{})
	if err != nil {
		t.Fatal(err)
	}
	return p, m
}

func TestQueue_FirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newFullPool(t, config.Queue{Length: 3, Timeout: time.Minute})
		served := make(chan int, 3)
		for i := range 3 {
			go func() {
				m, err := p.acquire(t.Context(), time.Now(), selection{})
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				served <- i
				p.group.release(m, 0)
			}()
			synctest.Wait()
		}
		if _, err := p.acquire(t.Context(), time.Now(), selection{}); !errors.Is(err, errQueueFull) {
			t.Errorf("a fourth in a queue of three: %v", err)
		}
		p.group.release(m, 0)
		for want := range 3 {
			if got := <-served; got != want {
				t.Errorf("served %d, want %d", got, want)
			}
		}
		synctest.Wait()
		if m.inFlight.Sum() != 0 || len(p.group.waiting) != 0 {
			t.Errorf("in the end %d are busy and %d wait", m.inFlight.Sum(), len(p.group.waiting))
		}
	})
}

// A request that comes while another one gives its place back does not overtake those that wait.
func TestQueue_NobodyOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newFullPool(t, config.Queue{Length: 2, Timeout: time.Minute})
		served := make(chan string, 2)
		for _, name := range []string{"first", "second"} {
			go func() {
				if m, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil {
					t.Errorf("%s: %v", name, err)
				} else {
					served <- name
					p.group.release(m, 0)
				}
			}()
			synctest.Wait()
			if name == "first" {
				m.inFlight.Add(0, -1) // the first half of release
			}
		}
		for _, want := range []string{"first", "second"} {
			if got := <-served; got != want {
				t.Errorf("served %s, want %s", got, want)
			}
		}
	})
}

// After a reload an upstream has two pools. The requests of one, whose target hangs, do not delay those of the other.
func TestQueue_OtherTargetsAfterAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, hangs := newFullPool(t, config.Queue{Length: 3, Timeout: time.Minute})
		c := before.config
		c.Targets = []config.Target{{URL: mustURL(t, "http://replacement")}}
		after := mustPool(t, c)
		busy, err := after.acquire(t.Context(), time.Now(), selection{})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *backend, 2)
		for _, p := range []*Pool{before, after} {
			go func() {
				m, err := p.acquire(t.Context(), time.Now(), selection{})
				if err != nil {
					t.Error(err)
				}
				got <- m
			}()
			synctest.Wait()
		}
		began := time.Now()
		after.group.release(busy, 0)
		if m := <-got; m != busy || time.Since(began) > 0 {
			t.Errorf("a free target was used by %v after %v", m, time.Since(began))
		}
		before.group.release(hangs, 0)
		if m := <-got; m != hangs {
			t.Errorf("then %v was used", m)
		}
	})
}

func TestQueue_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newFullPool(t, config.Queue{Length: 1, Timeout: time.Minute})
		began := time.Now()
		if _, err := p.acquire(t.Context(), time.Now(), selection{}); !errors.Is(err, errQueueFull) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v, want errBusy after a minute", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.acquire(ctx, time.Now(), selection{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client that left: %v", err)
		}
		p.group.release(m, 0)
		if m, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil || m.inFlight.Sum() != 1 {
			t.Errorf("nobody waits and nobody is busy, but got %v, %v", m, err)
		}
	})
}

// A turn that comes in the very moment in which its client gives up is not lost.
func TestQueue_CanceledWaiterLosesNoBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			p, m := newFullPool(t, config.Queue{Length: 1, Timeout: time.Minute})
			go func() {
				time.Sleep(time.Minute) // of the bubble: the moment in which the wait ends
				p.group.release(m, 0)
			}()
			if m, err := p.acquire(t.Context(), time.Now(), selection{}); err == nil {
				p.group.release(m, 0)
			}
			synctest.Wait()
			if m.inFlight.Sum() != 0 || len(p.group.waiting) != 0 {
				t.Fatalf("%d busy, %d waiting; want nobody", m.inFlight.Sum(), len(p.group.waiting))
			}
		}
	})
}

// A client that has left loses its place in the queue, also if its request has waited
// there before and has been sent in between.
func TestQueue_ClientGoneInASecondWait(t *testing.T) {
	arrived, first, last := make(chan string, 1), make(chan bool), make(chan bool)
	url := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			panic(http.ErrAbortHandler)
		case "/first":
			arrived <- r.URL.Path
			<-first
		case "/last":
			arrived <- r.URL.Path
			<-last
		}
	})
	defer close(last)
	p := newOrderedPool(t, Config{Upstream: config.Upstream{MaxConnections: 1, Queue: config.Queue{Length: 2, Timeout: time.Hour}, Retries: 1, Timeouts: config.Timeouts{Response: time.Hour}}}, url)
	waiting := func(want int) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%d in the queue", want), func() bool {
			p.group.mu.Lock()
			defer p.group.mu.Unlock()
			return len(p.group.waiting) == want
		})
	}
	h := startProxy(t, p, nil)
	h.dial(t, "GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
	await.Value(t, arrived, "the first request")
	leaves, _ := h.dial(t, "GET /fails HTTP/1.1\r\nHost: a\r\n\r\n")
	waiting(1)
	h.dial(t, "GET /last HTTP/1.1\r\nHost: a\r\n\r\n")
	waiting(2)
	close(first) // the second request is sent, fails, and waits behind the third
	await.Value(t, arrived, "the last request")
	waiting(1)
	leaves.Close()
	waiting(0)
}

func TestQueue_RecoveredTargetIsUsedImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, Config{Upstream: config.Upstream{MaxConnections: 1, Queue: config.Queue{Length: 1, Timeout: time.Minute}, Health: config.Health{After: 1, Path: "/", Interval: 1, Timeout: 1}}}, 1, 1)
		p.group.recordCheck(p.backends[0], &p.config.Health, false)
		if m, err := p.acquire(t.Context(), time.Now(), selection{}); err != nil || m.host != "b" {
			t.Fatalf("got %v, %v", m, err)
		}
		got := make(chan *backend, 1)
		go func() {
			m, _ := p.acquire(t.Context(), time.Now(), selection{})
			got <- m
		}()
		synctest.Wait()
		p.group.recordCheck(p.backends[0], &p.config.Health, true)
		if m := <-got; m != p.backends[0] {
			t.Errorf("got %v, want the one that is back", m)
		}
	})
}

func TestHealthCheck_ImmediatelyAndEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, Config{Upstream: config.Upstream{Health: config.Health{After: 2, Rest: time.Second, Path: "/", Interval: 5 * time.Second, Timeout: time.Second}}}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var at []time.Duration
		ended := make(chan bool)
		go func() {
			p.checkHealth(ctx, p.backends[0], func(ctx context.Context, _ *backend) error {
				at = append(at, time.Since(began))
				<-ctx.Done() // as slow as may be
				return ctx.Err()
			})
			close(ended)
		}()
		time.Sleep(4 * time.Second)
		if !preferred(p)[0] {
			t.Error("one look in two takes it down")
		}
		time.Sleep(4 * time.Second)
		if preferred(p)[0] {
			t.Error("two slow looks leave it healthy")
		}
		cancel()
		<-ended
		if len(at) != 2 || at[0] != 0 || at[1] != 5*time.Second {
			t.Errorf("looked at %v, want at once and after 5 s", at)
		}
	})
}

func TestGroups_KeepStateAcrossPools(t *testing.T) {
	f := NewGroups(1)
	h := config.Health{After: 1, Rest: time.Hour}
	one := newTestPool(t, Config{Upstream: config.Upstream{Name: "x", Health: h}, Groups: f}, 1, 1)
	other := newTestPool(t, Config{Upstream: config.Upstream{Name: "y", Health: h}, Groups: f}, 1)
	one.group.recordConnect(one.backends[0], &h, false)
	two := newTestPool(t, Config{Upstream: config.Upstream{Name: "x", Health: h}, Groups: f}, 1, 1, 1)
	one.Close()
	one.Close() // does no harm
	if got := preferred(two); got[0] || !got[1] || !got[2] {
		t.Errorf("states %v, want that a still rests", got)
	}
	if !preferred(other)[0] {
		t.Error("the same target of another upstream rests too")
	}
	two.Close()
	if three := newTestPool(t, Config{Upstream: config.Upstream{Name: "x", Health: h}, Groups: f}, 1); !preferred(three)[0] {
		t.Error("an upstream that nobody had is remembered")
	}
	if n := len(f.groups); n != 2 {
		t.Errorf("%d groups, want those of x and y", n)
	}
}

// However requests end, there are never more in flight than MaxConnections, and none waits while there is room.
func TestQueue_HoldsInParallel(t *testing.T) {
	const goroutines, each, most = 8, 3000, 2
	p := newTestPool(t, Config{Upstream: config.Upstream{MaxConnections: most, Queue: config.Queue{Length: goroutines, Timeout: time.Minute}}, Groups: NewGroups(4)}, 1)
	var busy, worst atomic.Int64
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for range each {
				m, err := p.acquire(t.Context(), time.Now(), selection{stripe: i % 4})
				if err != nil {
					t.Error(err)
					return
				}
				if n := busy.Add(1); n > worst.Load() {
					worst.Store(n)
				}
				busy.Add(-1)
				p.group.release(m, i%4)
			}
		})
	}
	all.Wait()
	if n := p.backends[0].inFlight.Sum(); n != 0 || len(p.group.waiting) != 0 || worst.Load() > most {
		t.Errorf("in the end %d in flight and %d wait; %d at most at a time, want %d", n, len(p.group.waiting), worst.Load(), most)
	}
}

const noAnswer dnsmessage.RCode = 1000

// A nameserver answers every question for an IPv4 address with the one it has.
type nameserver struct {
	net.PacketConn
	address atomic.Pointer[[4]byte] // nil: the answer is code
	code    atomic.Uint32           // a dnsmessage.RCode; noAnswer for none
	asked   atomic.Int32
}

func newNameserver(t testing.TB) *nameserver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameserver{PacketConn: c}
	n.code.Store(uint32(dnsmessage.RCodeServerFailure))
	ended := make(chan bool)
	go func() { n.serve(); close(ended) }()
	t.Cleanup(func() { c.Close(); <-ended })
	return n
}

func (n *nameserver) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		n.asked.Add(1)
		q := m.Questions[0]
		m.Response, m.Additionals = true, nil
		if a := n.address.Load(); a == nil {
			if m.RCode = dnsmessage.RCode(n.code.Load()); m.RCode == noAnswer {
				continue
			}
		} else if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: *a},
			}}
		}
		if packed, err := m.Pack(); err == nil {
			_, _ = n.WriteTo(packed, from)
		}
	}
}

// resolver asks n and nobody else.
func (n *nameserver) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.LocalAddr().String())
	}}
}

// startAt is a server on an address of this machine that says which one it is.
func startAt(t testing.TB, address string, slow chan bool) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_ = http.NewResponseController(w).Flush()
			<-slow
		}
		_, _ = io.WriteString(w, address)
	}))
	s.Listener.Close()
	s.Listener = listen(t, "tcp", address)
	s.Start()
	t.Cleanup(s.Close)
}

func TestResolve_DrainsConnectionsToRemovedAddresses(t *testing.T) {
	first := listen(t, "tcp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(first.Addr().String())
	first.Close()
	slow := make(chan bool)
	release := sync.OnceFunc(func() { close(slow) })
	defer release() // a server does not end before its requests
	startAt(t, "127.0.0.1:"+port, slow)
	startAt(t, "127.0.0.2:"+port, slow)
	names := newNameserver(t)
	names.address.Store(&[4]byte{127, 0, 0, 1})

	p := newOrderedPool(t, Config{Upstream: config.Upstream{Resolve: time.Millisecond}, Resolver: names.resolver()}, "http://api.test.:"+port)
	h := startProxy(t, p, nil)
	get := func() string {
		_, body := h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		h.result(t) // its connection is given back
		return body
	}
	before := p.currentTransport.Load()
	p.Start()
	await.Until(t, "the first lookup has replaced connections", func() bool { return p.currentTransport.Load() != before })
	_, r := h.dial(t, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := r.Peek(1); err != nil { // a response has begun, so its connection is made
		t.Fatal(err)
	}
	if got := get(); got != "127.0.0.1:"+port { // its connection is kept
		t.Fatalf("%q answers", got)
	}
	names.address.Store(&[4]byte{127, 0, 0, 2})
	await.Until(t, "the new address answers", func() bool { return get() == "127.0.0.2:"+port })
	release()
	if _, body := answer(t, r, "GET"); body != "127.0.0.1:"+port {
		t.Errorf("the request under way reads %q", body)
	}
	h.result(t)
	if got := get(); got != "127.0.0.2:"+port {
		t.Errorf("%q answers after that", got)
	}
	names.address.Store(nil)
	asked := names.asked.Load()
	await.Until(t, "names were asked again and again", func() bool { return names.asked.Load() > asked+4 })
	if got := get(); got != "127.0.0.2:"+port {
		t.Errorf("%q answers when names cannot be looked up", got)
	}
}

// TestResolve_FirstLookupReplacesConnections: a connection made before it may go to an
// address that is gone since.
func TestResolve_FirstLookupReplacesConnections(t *testing.T) {
	names := newNameserver(t)
	p := newOrderedPool(t, Config{Resolver: names.resolver()}, "http://api.test.")
	defer p.Close()
	for i, step := range []struct {
		address *[4]byte
		moved   bool
	}{
		{nil, false},
		{&[4]byte{127, 0, 0, 1}, true},
		{&[4]byte{127, 0, 0, 1}, false},
		{nil, false},
		{&[4]byte{127, 0, 0, 2}, true},
	} {
		names.address.Store(step.address)
		if moved := p.config.names.addressRemoved(t.Context(), p.hostnames()); moved != step.moved {
			t.Errorf("step %d: moved is %v", i, moved)
		}
	}
}

func TestResolve_OnlyNames(t *testing.T) {
	p := newOrderedPool(t, Config{}, "http://127.0.0.1", "https://[::1]:1", "http://[::1]", "unix:/s", "http://a.example", "http://a.example:81", "https://b")
	defer p.Close()
	if got := strings.Join(p.hostnames(), " "); got != "a.example b" {
		t.Errorf("names %q", got)
	}
	if e := mustPool(t, Config{Upstream: config.Upstream{Echo: true}}); len(e.hostnames()) > 0 {
		t.Error("echo has a name")
	}
}
