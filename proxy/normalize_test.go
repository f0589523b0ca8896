package proxy

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A request of HTTP/1.0 without a host is for whoever was connected to, and never
// for what the upstream is called.
func TestNormalize_NoHostInHTTP10(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		for _, host := range []string{"", "X: 1\r\n"} {
			s := startRecording(t, fine)
			f := over.opened(t, forwardYAML(s.url, "", ""))
			f.dial("GET /x HTTP/1.0\r\n" + host + "\r\n").WantStatus(200)
			if got := s.last(t); !strings.Contains(got, "Host: "+f.addr+"\r\n") {
				t.Errorf("forwarded as %q; want the host %s", got, f.addr)
			}
		}
	})
}

func TestNormalize_NoHostBySocket(t *testing.T) {
	s := startRecording(t, fine)
	f := startServer(t, forwardYAML(s.url, "", ""))
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f.served.Go(func() { f.server.Serve(l) })
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("GET /x HTTP/1.0\r\n\r\n"))
	if got := s.last(t); !strings.Contains(got, "Host: localhost\r\n") {
		t.Errorf("forwarded as %q; want the host localhost", got)
	}
}

// What a proxy that is trusted says of TLS is believed.
func TestNormalize_SchemeOfATrustedProxy(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML("echo", "client_ip: {trusted_proxies: [127.0.0.0/8]}", ""))
		f.dial("GET https://b.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n").WantStatus(200)
		f.dial("GET ftp://b.example/x HTTP/1.1\r\nHost: b.example\r\n\r\n").WantStatus(400)
	})
}

// A fragment made a new key of each request, and hid the query from match.
func TestNormalize_FragmentsAreNoKeys(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, "routes:\n  - {match: {path: /a}, upstream: echo, limits: [{key: \"query:user\", rate: 1/1h}]}\n")
		f.dial("GET /a?user=v HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(200)
		for _, said := range []string{"/a?user=v#1", "/a?user=v#2", "/a#?user=w"} {
			f.dial("GET " + said + " HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(400)
		}
	})
}

// A tunnel is refused on its stream, and what the client sends there is not read.
func TestNormalize_NoTunnelInHTTP2(t *testing.T) {
	s := startServer(t, forwardYAML("echo", cleartext, "")).speaks()
	s.begins(1, ":method", "CONNECT", ":authority", "a:80")
	s.WriteData(1, false, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	var status string
	ended := false
	s.hears("405 and the end of the stream", func(f http2.Frame) bool { // in any order
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			ended = f.ErrCode == http2.ErrCodeNo
		}
		return status != "" && ended
	})
	if status != "405" {
		t.Errorf("status %s; want 405", status)
	}
}
