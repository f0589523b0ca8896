package http1

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/sockettest"
)

// sized answers each request with a body of so many bytes, with as little work as
// a server can do.
func sized(t testing.TB, n int) string {
	t.Helper()
	body := []byte(strings.Repeat("x", n))
	s := &Server{Handler: func(x *Exchange) {
		x.Begin(200)
		_ = x.Send(body)
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
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
	if allocs := testing.AllocsPerRun(2000, ask); allocs >= 1 && !poisoned && !raced {
		t.Errorf("got %v allocations per request; want none", allocs)
	}
}
