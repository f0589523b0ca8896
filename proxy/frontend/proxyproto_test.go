package frontend

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/pires/go-proxyproto"

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

// balanced trusts whoever is on this machine to say who its clients are.
const balanced = "proxy_protocol: [127.0.0.0/8], timeouts: {header: 300ms}"

func TestProxyProtocol_ByTrustedBalancers(t *testing.T) {
	f := startServer(t, balanced, echo())
	for version := byte(1); version <= 2; version++ {
		w := f.dial(proxyHeader(t, version) + plainly + plainly)
		for range 2 {
			if _, body := w.WantStatus(200); !strings.Contains(body, `"203.0.113.7"`) {
				t.Errorf("version %d: %s; want the client that the balancer names", version, body)
			}
		}
	}
	for _, said := range []string{"PROXY UNKNOWN\r\n", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} { // of their own: a health check
		if _, body := f.dial(said + plainly).WantStatus(200); !strings.Contains(body, `"127.0.0.1"`) {
			t.Errorf("%q: %s; want the balancer's own address", said, body)
		}
	}
}

func TestProxyProtocol_TrustedBalancersMust(t *testing.T) {
	f := startServer(t, balanced, echo())
	for _, said := range []string{plainly, "PROXY TCP4 nonsense\r\n" + plainly, "PROXY TCP4 1.2.3.4 ", ""} {
		f.dial(said).WantClosed()
	}
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

func TestProxyProtocol_BeforeTLS(t *testing.T) {
	f := startServer(t, balanced, echo())
	f.addr, _ = f.listenTLS()
	w := f.dial(proxyHeader(t, 2))
	c := tls.Client(w.Conn, &tls.Config{InsecureSkipVerify: true})
	in := sockettest.NewClient(t, c)
	io.WriteString(c, plainly)
	if _, body := in.WantStatus(200); !strings.Contains(body, `"203.0.113.7"`) {
		t.Errorf("got %s; want the client that the balancer names", body)
	}
}
