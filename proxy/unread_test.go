package proxy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What is no request is refused as everything else is: in words, on a connection that
// ends, with a line in the log and a figure, and without a word to the upstream.
func TestUnread_IsRefusedAsAllElse(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		f := over.opened(t, strings.Replace(forwardYAML(s.url, "", ""), "routes:", "listen: {max_header: 4KiB}\nroutes:", 1))
		for _, c := range []struct {
			name, bytes string
			status      int
		}{
			{"no request line", "garbage\r\n\r\n", 400},
			{"no version", "GET /\r\n\r\n", 400},
			{"a version that is none", rawLines("GET / HTTP/x|Host: a||"), 400},
			{"a target that is none", rawLines("GET a%zz HTTP/1.1|Host: a||"), 400},
			{"a method that is none", rawLines("G@T / HTTP/1.1|Host: a||"), 400},
			{"no host", rawLines("GET / HTTP/1.1|X-A: a||"), 400},
			{"two hosts", rawLines("GET / HTTP/1.1|Host: a|Host: b||"), 400},
			{"a host that is none", rawLines("GET / HTTP/1.1|Host: a b||"), 400},
			{"a field without a colon", rawLines("GET / HTTP/1.1|Host: a|X-A||"), 400},
			{"a blank before the colon", rawLines("GET / HTTP/1.1|Host: a|X-A : a||"), 400},
			{"a field with a control character", rawLines("GET / HTTP/1.1|Host: a|X-A: \x01||"), 400},
			{"two lengths", rawLines("POST / HTTP/1.1|Host: a|Content-Length: 1|Content-Length: 2||x"), 400},
			{"a length that is none", rawLines("POST / HTTP/1.1|Host: a|Content-Length: 1x||x"), 400},
			{"an expectation that nobody has", rawLines("POST / HTTP/1.1|Host: a|Expect: tea|Content-Length: 0||"), 417},
			{"a long header", rawLines("GET / HTTP/1.1|Host: a|X-A: " + strings.Repeat("a", 64<<10) + "||"), 431},
			{"a coding that is not known", rawLines("POST / HTTP/1.1|Host: a|Transfer-Encoding: br||"), 501},
			{"a version to come", rawLines("GET / HTTP/3.0|Host: a||"), 505},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := f.dial(c.bytes)
				w.TB = t
				answer, body := w.WantStatus(c.status)
				if got := answer.Header.Get("Content-Type"); got != "application/problem+json" {
					t.Errorf("%s: %q; want a problem", got, body)
				}
				if !answer.Close {
					t.Errorf("%v; want Connection: close", answer.Header)
				}
				w.WantClosed()
			})
		}
		if lines := f.lines("request"); len(lines) != 17 || lines[0]["status"] != 400.0 || lines[0]["error"] == "" || lines[0]["client"] != "127.0.0.1" {
			t.Errorf("the log has %v; want a line of each", lines)
		}
		if n := testutil.CollectAndCount(f.metrics.requests); n != 5 {
			t.Errorf("%d figures of requests; want one of each status", n)
		}
		s.notAsked(t)
	})
}

// The same behind a request that is as it should be: that one is answered by the
// upstream, the rest ends the connection.
func TestUnread_BehindARequest(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		s := startRecording(t, fine)
		w := over.opened(t, forwardYAML(s.url, "", "")).dial(plainly + "garbage\r\n\r\n" + plainly)
		w.WantStatus(200)
		w.WantStatus(400)
		w.WantClosed()
		if got := s.last(t); !strings.HasPrefix(got, "GET ") {
			t.Errorf("the upstream was sent %q", got)
		}
		s.notAsked(t)
	})
}
