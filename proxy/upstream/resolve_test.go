package upstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weir-proxy/weir/test/await"
)

// A nameserver answers every question for an IPv4 address with the one it has.
type nameserver struct {
	net.PacketConn
	address atomic.Pointer[[4]byte] // nil: nobody knows
	asked   atomic.Int32
}

func newNameserver(t testing.TB) *nameserver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameserver{PacketConn: c}
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
			m.RCode = dnsmessage.RCodeServerFailure
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

	p := newOrderedPool(t, Config{Resolver: names.resolver(), ResolveInterval: time.Millisecond}, "http://api.test.:"+port)
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
	known := map[string][]netip.Addr{}
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
		if moved := p.addressRemoved(t.Context(), p.hostnames(), known); moved != step.moved {
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
	if e := mustPool(t, Config{Echo: true}); len(e.hostnames()) > 0 {
		t.Error("echo has a name")
	}
}
