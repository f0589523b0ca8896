package http1

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/sockettest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// soon is how long a test waits for what must happen. It is a failure to reach
// it.
const soon = 20 * time.Second

// A proxy is the smallest there can be: a Server and a Client, and nothing in
// between but what every proxy must do.
type proxy struct {
	server *Server
	client *Client
	pool   *Pool
	addr   string
	faults chan error
	change func(x *Exchange, c *Call)
}

// proxyTo starts a proxy before an address. set may change its parts.
func proxyTo(t testing.TB, address string, set func(*proxy)) *proxy {
	t.Helper()
	p := &proxy{server: &Server{}, client: &Client{ConnectTimeout: soon, ResponseTimeout: soon}, faults: make(chan error, 100)}
	p.server.Timeouts = Timeouts{Header: soon, Body: soon, Write: soon, Idle: soon}
	p.server.Handler = p.handle
	p.server.OnPanic = func(v any) { t.Errorf("panic: %v", v) }
	if set != nil {
		set(p)
	}
	l := sockettest.Listen(t)
	p.addr = l.Addr().String()
	if s, ok := t.(sockettest.Secured); ok {
		l = secureListener{l, s.Server}
	}
	p.pool = p.client.NewPool(endpointOf(t, address))
	served := make(chan error, 1)
	go func() { served <- sockettest.Accept(l, p.server.ServeConn) }()
	t.Cleanup(func() {
		l.Close()
		p.server.Close()
		p.pool.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		await.Within(t, soon, "no connection is left", func() bool { return len(p.server.conns.All()) == 0 })
	})
	return p
}

// endpointOf is the Endpoint of an origin.
func endpointOf(t testing.TB, address string) Endpoint {
	to := Endpoint{Network: "tcp", Address: address}
	if s, ok := t.(sockettest.Secured); ok {
		to.TLS = s.Client
	}
	return to
}

// A secureListener accepts TLS connections of TLSServer.
type secureListener struct {
	net.Listener
	config *tls.Config
}

func (l secureListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return TLSServer(c, l.config), nil
}

// handle forwards one request.
func (p *proxy) handle(x *Exchange) {
	c := p.client.NewCall(x)
	defer c.Release()
	if p.change != nil {
		p.change(x, c)
	}
	c.KeepRequestTrailer = func(Field) bool { return true }
	if to, _ := x.Fields.Value(Upgrade); to == "websocket" {
		c.SetUpgrade(to)
	}
	x.Fields.StripHopByHop()
	query, asked := x.RawQuery()
	mark := ""
	if asked {
		mark = "?"
	}
	h := c.Begin(x.Method(), x.Host(), x.Path(), mark, query)
	h.AddFields(&x.Fields)
	if err := p.pool.Send(c); err != nil {
		p.fails(x, err)
		return
	}
	if c.Response.Status == 101 {
		p.tunnel(x, c)
		return
	}
	h = x.Begin(c.Response.Status)
	c.Response.Fields.StripHopByHop()
	h.AddFields(&c.Response.Fields)
	if err := x.Relay(c); err != nil {
		p.fault(err)
	}
}

func (p *proxy) fails(x *Exchange, err error) {
	p.fault(err)
	status := 502
	var refusal *Error
	var fault *CallError
	switch {
	case errors.As(err, &fault) && fault.Phase == ReadingRequestBody && errors.As(err, &refusal):
		status = refusal.Status
	case timedOut(err):
		status = 504
	}
	_ = x.sendText(status, "failed")
}

func (p *proxy) fault(err error) {
	select {
	case p.faults <- err:
	default:
	}
}

func (p *proxy) tunnel(x *Exchange, c *Call) {
	c.Response.Fields.StripHopByHop()
	h := x.Begin(101)
	h.AddFields(&c.Response.Fields)
	up, rest, _ := c.UpgradedConn()
	down, unread, err := x.SwitchProtocols("websocket")
	if err != nil {
		up.Close()
		return
	}
	new(Tunnels).Run(TunnelEnd{down, unread}, TunnelEnd{up, rest})
}

func (p *proxy) dial(t testing.TB, said string) *sockettest.Client {
	t.Helper()
	return sockettest.Dial(t, p.addr, said)
}

// answering answers each request with the same bytes, and notes what came.
func answering(t testing.TB, answer string) (address string, seen chan string) {
	t.Helper()
	seen = make(chan string, 1000)
	return sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
		eachRequest(r, func(said string) {
			seen <- said
			_, _ = io.WriteString(c, answer)
		})
	}), seen
}

// eachRequest gives each request to answer, as it stands on the wire, until no more comes.
func eachRequest(r *bufio.Reader, answer func(said string)) {
	for {
		said, err := requestOn(r)
		if err != nil {
			return
		}
		answer(said)
	}
}

// requestOn reads one request as it stands on the wire.
func requestOn(r *bufio.Reader) (string, error) {
	var said strings.Builder
	tee := bufio.NewReaderSize(io.TeeReader(unbuffered{r}, &said), 16)
	req, err := http.ReadRequest(tee)
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return "", err
	}
	return said.String(), nil
}

// unbuffered reads no byte ahead.
type unbuffered struct{ *bufio.Reader }

func (u unbuffered) Read(p []byte) (int, error) {
	b, err := u.ReadByte()
	if err != nil {
		return 0, err
	}
	p[0] = b
	return 1, nil
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// sendsNoMore ends one direction of a connection.
func sendsNoMore(c net.Conn) { _ = c.(interface{ CloseWrite() error }).CloseWrite() }

// sized answers each request with a body of so many bytes, with as little work as
// a server can do.
func sized(t testing.TB, n int) string {
	t.Helper()
	body := []byte(strings.Repeat("x", n))
	s := &Server{Handler: func(x *Exchange) {
		x.Begin(200)
		_ = x.Send(body)
	}}
	l := sockettest.Listen(t)
	go func() { _ = sockettest.Accept(l, s.ServeConn) }()
	t.Cleanup(func() { l.Close(); s.Close() })
	return l.Addr().String()
}

// asks sends the same request again and again over one connection.
func asks(b *testing.B, address, request string, answer int) {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	said := []byte(request)
	heard := make([]byte, 64<<10)
	ask := func() {
		if _, err := c.Write(said); err != nil {
			b.Fatal(err)
		}
		for n, end := 0, 0; end == 0 || n < end+answer; {
			m, err := c.Read(heard)
			if err != nil {
				b.Fatal(err)
			}
			if end == 0 {
				end = bytes.Index(heard[:m], []byte("\r\n\r\n")) + 4
			}
			n += m
		}
	}
	ask()
	b.ReportAllocs()
	for b.Loop() {
		ask()
	}
}

const usual = "GET /v1/x?y=z HTTP/1.1\r\nHost: example.com\r\nUser-Agent: curl/8\r\nAccept: */*\r\nX-Phone: 1\r\n\r\n"

// What a forwarded request costs, client and upstream included.
func BenchmarkProxy(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1KiB", 1 << 10}, {"100KiB", 100 << 10}} {
		b.Run("http1/"+size.name, func(b *testing.B) {
			asks(b, proxyTo(b, sized(b, size.bytes), nil).addr, usual, size.bytes)
		})
		b.Run("ReverseProxy/"+size.name, func(b *testing.B) {
			to := &url.URL{Scheme: "http", Host: sized(b, size.bytes)}
			s := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(to) },
				ErrorLog: log.New(io.Discard, "", 0),
			})
			defer s.Close()
			asks(b, s.Listener.Addr().String(), usual, size.bytes)
		})
	}
	b.Run("direct", func(b *testing.B) { asks(b, sized(b, 1<<10), usual, 1<<10) })
}

// The path that most requests take costs no memory.
func TestProxy_AllocatesNothingPerRequest(t *testing.T) {
	p := proxyTo(t, sized(t, 100), nil)
	c := p.dial(t, "").Conn
	said, heard := []byte(usual), make([]byte, 4096)
	ask := func() {
		_, _ = c.Write(said)
		for n := 0; n < 100; {
			m, err := c.Read(heard)
			if err != nil || !strings.HasPrefix(string(heard[:12]), "HTTP/1.1 200") {
				t.Fatalf("%q, %v", heard[:m], err)
			}
			n += m
		}
	}
	ask()
	if allocs := rounds.Allocations(2000, ask); allocs >= 1 && !reuse.Poisoned && !raced {
		t.Errorf("got %v allocations per request; want none", allocs)
	}
}
