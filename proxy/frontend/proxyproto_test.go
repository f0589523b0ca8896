package frontend

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// proxyHeader is what a load balancer says of a client at 203.0.113.7.
func proxyHeader(t *testing.T, version byte) string {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(version,
		&net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 4711}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80})
	var b bytes.Buffer
	if _, err := h.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// dialBehind connects a client behind a balancer, which says something first: in the clear,
// also before TLS.
func (t *testServer) dialBehind(balancer, said string) *sockettest.Client {
	t.Helper()
	w := sockettest.Dial(t.T, t.addr, balancer)
	if t.client != nil {
		w = sockettest.NewClient(t.T, tls.Client(w.Conn, t.client))
	}
	w.Send(said)
	return w
}

// balanced trusts whoever is on this machine to say who its clients are.
const balanced = "proxy_protocol: [127.0.0.0/8]"

func TestProxyProtocol_ByTrustedBalancers(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced, echo())
		for version := byte(1); version <= 2; version++ {
			w := f.dialBehind(proxyHeader(t, version), plainly+plainly)
			for range 2 {
				if _, body := w.WantStatus(200); !strings.Contains(body, `"203.0.113.7"`) {
					t.Errorf("version %d: %s; want the client that the balancer names", version, body)
				}
			}
		}
		for _, said := range []string{"PROXY UNKNOWN\r\n", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} { // of their own: a health check
			if _, body := f.dialBehind(said, plainly).WantStatus(200); !strings.Contains(body, `"127.0.0.1"`) {
				t.Errorf("%q: %s; want the balancer's own address", said, body)
			}
		}
	})
}

func TestProxyProtocol_TrustedBalancersMust(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced+", timeouts: {header: 300ms}", echo())
		for _, said := range []string{plainly, "PROXY TCP4 nonsense\r\n" + plainly, "PROXY TCP4 1.2.3.4 ", ""} {
			sockettest.Dial(t, f.addr, said).WantClosed() // in the clear, as what balancers say is
		}
	})
}

func TestProxyProtocol_NobodyElseMay(t *testing.T) {
	f := startServer(t, "proxy_protocol: [10.0.0.0/8]", echo())
	for version := byte(1); version <= 2; version++ {
		f.dial(proxyHeader(t, version) + plainly).WantStatus(400)
	}
	if _, body := f.dial(plainly).WantStatus(200); !strings.Contains(body, `"127.0.0.1"`) {
		t.Errorf("got %s; want the peer's own address", body)
	}
}

// A balancer that sends no valid header is closed, counted and logged, once a minute. One that only tries to connect
// is not.
func TestProxyProtocol_BadHeadersAreSeen(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced, echo())
		sockettest.Dial(t, f.addr, "").Conn.Close()
		for _, said := range []string{plainly, "PROXY nonsense\r\n", "\r\n\r\n\x00\r\nQUIT\n\xff\x00\x00\x00"} {
			sockettest.Dial(t, f.addr, said).WantClosed()
		}
		await.Until(t, "three errors", func() bool { return f.server.BadProxyHeaders() == 3 })
		if n := strings.Count(f.log.String(), "no valid PROXY protocol header"); n != 1 {
			t.Errorf("%d lines in the log; want 1", n)
		}
	})
}
