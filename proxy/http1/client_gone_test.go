package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A connection that somebody was authenticated on serves nobody else.
func TestForward_ConnectionBoundAuthentication(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct {
			challenge string
			kept      int
		}{{"NTLM", 0}, {"Basic realm=x, Negotiate abc", 0}, {`Basic realm="x"`, 1}} {
			address, _ := answering(t, lined("HTTP/1.1 401 Unauthorized|WWW-Authenticate: "+c.challenge+"|Content-Length: 0||"))
			p := proxyTo(t, address, nil)
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a|Connection: close||"))
			w.WantStatus(401)
			w.WantClosed()
			if got := p.pool.Idle(); got != c.kept {
				t.Errorf("%s: %d connections were kept; want %d", c.challenge, got, c.kept)
			}
		}
	})
}

// An upstream is no longer asked for a client that has left, whether it is silent
// before its answer or in the middle of it.
func TestForward_ClientGone(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, begin := range []string{"", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"} {
			asked, ended := make(chan bool, 1), make(chan error, 1)
			address := sockettest.Upstream(t, func(c net.Conn, r *bufio.Reader) {
				_, _ = requestOn(r)
				_, _ = io.WriteString(c, begin)
				asked <- true
				_, err := io.Copy(io.Discard, r)
				ended <- err
			})
			p := proxyTo(t, address, func(p *proxy) { p.server.HalfClose = AbortOnHalfClose })
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
			await.Value(t, asked, "request")
			w.Close()
			if err := await.Value(t, ended, "end"); timedOut(err) {
				t.Errorf("got %v", err)
			}
			if err := await.Value(t, p.faults, "fault"); !errors.Is(err, ErrAborted) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// Of TE only "trailers" reaches the upstream, and only as our own word.
func TestForward_TEIsGenerated(t *testing.T) {
	for _, accept := range []bool{true, false} {
		address, seen := answering(t, okAnswer)
		p := proxyTo(t, address, func(p *proxy) {
			p.change = func(_ *Exchange, c *Call) {
				if accept {
					c.AcceptTrailers()
				}
			}
		})
		for _, line := range []string{"TE: gzip", "TE: trailers, gzip;q=0.5", "te: trailers|Connection: te", "TE: trailers|TE: deflate|Connection: TE, X", ""} {
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a|"+strings.TrimPrefix(line+"|", "|")+"|"))
			w.WantStatus(200)
			got := await.Value(t, seen, "request")
			want := lined("GET / HTTP/1.1|Host: a||")
			if accept {
				want = lined("GET / HTTP/1.1|Host: a|Connection: TE|TE: trailers||")
			}
			if got != want {
				t.Errorf("%q: got %q; want %q", line, got, want)
			}
			w.Close()
		}
	}
}
