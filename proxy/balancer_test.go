package proxy

import (
	"strings"
	"testing"
)

// plainly is a request of HTTP/1.1.
const plainly = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// Whom a trusted load balancer names in the PROXY protocol is the client, in the log
// and for the upstream.
func TestAddress_OfAClientBehindABalancer(t *testing.T) {
	f := startServer(t, forwardYAML("echo", "listen: {proxy_protocol: [127.0.0.0/8]}", ""))
	_, body := f.dial("PROXY TCP4 203.0.113.7 192.0.2.1 4711 80\r\n" + plainly).WantStatus(200)
	if !strings.Contains(body, `"203.0.113.7"`) {
		t.Errorf("%s; want the client that the balancer names", body)
	}
	if line := f.line("request"); line["client"] != "203.0.113.7" {
		t.Errorf("logged %v", line)
	}
}
