package http1

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// What reaches the upstream is generated anew from what was understood.
func TestForward_Requests(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address, seen := answering(t, okAnswer)
		p := proxyTo(t, address, func(p *proxy) {
			p.change = func(x *Exchange, c *Call) { c.AcceptTrailers() }
		})
		const te = "Connection: TE|TE: trailers|"
		for _, c := range []struct{ topic, said, want string }{
			{"raw query", "GET /?a=%zz&a=1&&;b HTTP/1.1|Host: a||", "GET /?a=%zz&a=1&&;b HTTP/1.1|Host: a|" + te + "|"},
			{"empty query", "GET /? HTTP/1.1|Host: a||", "GET /? HTTP/1.1|Host: a|" + te + "|"},
			{"two slashes", "GET //evil/x HTTP/1.1|Host: a||", "GET //evil/x HTTP/1.1|Host: a|" + te + "|"},
			{"escaped line end", "GET /x%0d%0aA:b HTTP/1.1|Host: a||", "GET /x%0d%0aA:b HTTP/1.1|Host: a|" + te + "|"},
			{"absolute target", "GET http://b:81/x HTTP/1.1|Host: a||", "GET /x HTTP/1.1|Host: b:81|" + te + "|"},
			{"Host comes first", "GET / HTTP/1.1|A: 1|Host: a||", "GET / HTTP/1.1|Host: a|A: 1|" + te + "|"},
			{"hop by hop", "GET / HTTP/1.1|Host: a|Connection: close, x-a|X-A: 1|TE: gzip|Keep-Alive: 3||", "GET / HTTP/1.1|Host: a|" + te + "|"},
			{"h2c", "GET / HTTP/1.1|Host: a|Connection: Upgrade, HTTP2-Settings|Upgrade: h2c|HTTP2-Settings: a||", "GET / HTTP/1.1|Host: a|" + te + "|"},
			{"HTTP/1.0", "GET / HTTP/1.0|Host: a|Expect: 100-continue||", "GET / HTTP/1.1|Host: a|" + te + "|"},
			{"body of a GET", "GET / HTTP/1.1|Host: a|Content-Length: 2||hi", "GET / HTTP/1.1|Host: a|Content-Length: 2|" + te + "|hi"},
			{"length with zeros", "POST / HTTP/1.1|Host: a|Content-Length: 002||hi", "POST / HTTP/1.1|Host: a|Content-Length: 2|" + te + "|hi"},
			{"length 0", "POST / HTTP/1.1|Host: a|Content-Length: 0||", "POST / HTTP/1.1|Host: a|Content-Length: 0|" + te + "|"},
			{"extensions and case of chunks", "POST / HTTP/1.1|Host: a|Transfer-Encoding: CHUNKED||00A;x|0123456789|0;y||", "POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked|" + te + "|a|0123456789|0||"},
			{"trailers that say how to read", "POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||1|x|0|X-Forwarded-For: 6|Content-Length: 3|X-Sum: 1||", "POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked|" + te + "|1|x|0|X-Sum: 1||"},
		} {
			w := p.dial(t, lined(c.said))
			w.WantStatus(200)
			if got := await.Value(t, seen, "request"); got != lined(c.want) {
				t.Errorf("%s: got %q; want %q", c.topic, got, lined(c.want))
			}
			w.Close()
		}
	})
}

// What the client gets is framed for it, whatever the upstream did.
func TestForward_Responses(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct{ topic, request, answer, want string }{
			{"length", "GET / HTTP/1.1", "200 OK|Content-Length: 2||ok", "Content-Length: 2||ok"},
			{"chunks", "GET / HTTP/1.1", "200 OK|Transfer-Encoding: chunked||1b60;x|" + strings.Repeat("x", 0x1b60) + "|0||", "Transfer-Encoding: chunked||1b60|" + strings.Repeat("x", 0x1b60) + "|0||"},
			{"trailers", "GET / HTTP/1.1", "200 OK|Transfer-Encoding: chunked||1|x|0|X-Sum: 1|Set-Cookie: a=b||", "Transfer-Encoding: chunked||1|x|0|X-Sum: 1||"},
			{"chunks for HTTP/1.0", "GET / HTTP/1.0", "200 OK|Transfer-Encoding: chunked||1|x|0|X-Sum: 1||", "Connection: close||x"},
			{"length for HTTP/1.0", "GET / HTTP/1.0|Connection: keep-alive", "200 OK|Content-Length: 2||ok", "Content-Length: 2|Connection: keep-alive||ok"},
			{"no framing", "GET / HTTP/1.1", "200 OK|Connection: close||ok", "Transfer-Encoding: chunked||2|ok|0||"},
			{"HEAD", "HEAD / HTTP/1.1", "200 OK|Content-Length: 100||", "Content-Length: 100||"},
			{"HEAD, chunks", "HEAD / HTTP/1.1", "200 OK|Transfer-Encoding: chunked||", "|"},
			{"204", "GET / HTTP/1.1", "204 No Content|Content-Length: 5||", "|"},
			{"304", "GET / HTTP/1.1", "304 Not Modified|Content-Length: 5||", "Content-Length: 5||"},
			{"reason", "GET / HTTP/1.1", "200 Evil\tThing|Content-Length: 0||", "Content-Length: 0||"},
			{"hop by hop", "GET / HTTP/1.1", "200 OK|Content-Length: 0|Connection: x-a|X-A: 1|Keep-Alive: 1|Upgrade: h2c||", "Content-Length: 0||"},
		} {
			address, _ := answering(t, "HTTP/1.1 "+lined(c.answer))
			if strings.Contains(c.answer, "Connection: close") {
				address = originOnce(t, "HTTP/1.1 "+lined(c.answer))
			}
			p := proxyTo(t, address, nil)
			w := p.dial(t, lined(c.request+"|Host: a|Connection: close||"))
			raw, err := io.ReadAll(w.Reader)
			_, got, _ := strings.Cut(string(raw), "GMT\r\n")
			got = strings.Replace(got, "\r\nConnection: close\r\n\r\n", "\r\n\r\n", 1)
			got = strings.Replace(got, "Connection: close\r\n\r\n", "\r\n", 1)
			want := strings.Replace(strings.Replace(c.want, "|Connection: keep-alive", "", 1), "Connection: close||", "|", 1)
			if err != nil || got != lined(want) {
				t.Errorf("%s: got %q (%q), %v; want %q", c.topic, got, raw, err, lined(want))
			}
		}
	})
}

// A message cut short looks cut on the other side, and nothing is used again.
func TestForward_TruncatedResponseStaysTruncated(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, answer := range []string{"Content-Length: 10||hello", "Transfer-Encoding: chunked||5|hello|", "Transfer-Encoding: chunked||5|hel", "Transfer-Encoding: chunked||5|helloXX"} {
			p := proxyTo(t, originOnce(t, lined("HTTP/1.1 200 OK|"+answer)), nil)
			for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} {
				w := p.dial(t, lined("GET / "+version+"|Host: a||"))
				res, err := http.ReadResponse(w.Reader, nil)
				var body []byte
				if err == nil {
					body, err = io.ReadAll(res.Body)
				}
				if err == nil {
					t.Errorf("%s %q: got %q, and no sign that it is cut", version, answer, body)
				}
				var fault *CallError
				if err := await.Value(t, p.faults, "fault"); !errors.As(err, &fault) || fault.Phase != ReadingResponseBody {
					t.Errorf("%q: got %v; want a fault in the answer", answer, err)
				}
			}
			if p.pool.Idle() != 0 {
				t.Errorf("%q: the connection was kept", answer)
			}
		}
	})
}

func TestForward_TruncatedRequestIsNotCompleted(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, said := range []string{"Content-Length: 10||hel", "Transfer-Encoding: chunked||5|hello|", "Transfer-Encoding: chunked||5|hello|0|"} {
			whole := make(chan error, 1)
			address := sockettest.Upstream(t, func(_ net.Conn, r *bufio.Reader) {
				_, err := requestOn(r)
				whole <- err
			})
			p := proxyTo(t, address, nil)
			w := p.dial(t, lined("POST / HTTP/1.1|Host: a|"+said))
			sendsNoMore(w.Conn)
			if err := await.Value(t, whole, "request"); err == nil {
				t.Errorf("%q: the upstream saw a whole request", said)
			}
			if p.pool.Idle() != 0 {
				t.Errorf("%q: the connection was kept", said)
			}
		}
	})
}

// What the client does wrong in a body is its fault, and ends its connection:
// nothing behind it is taken for a request.
func TestForward_BadBodies(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		address, _ := answering(t, okAnswer)
		p := proxyTo(t, address, nil)
		for _, body := range []string{"INVALID|GET / HTTP/1.1|Host: a||", "5|helloXX0||", "5|hello|0|A:b\nGET / HTTP/1.1|Host: a||", "0|A b||"} {
			w := p.dial(t, lined("POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||"+body))
			w.WantStatus(400)
			w.WantClosed()
		}
	})
}

// A request whose connection is closed by the upstream at this moment is sent
// again if that is safe, and only then.
func TestForward_StaleConnections(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct {
			said string
			want int
		}{
			{"GET / HTTP/1.1|Host: a||", 200},
			{"PUT / HTTP/1.1|Host: a|Content-Length: 2||hi", 200},
			{"POST / HTTP/1.1|Host: a|Content-Length: 2||hi", 502},
			{"PUT / HTTP/1.1|Host: a|Content-Length: 100000||" + strings.Repeat("x", 100_000), 502}, // it cannot be read again
		} {
			address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
				_, _ = requestOn(r)
				_, _ = io.WriteString(nc, okAnswer)
				_, _ = requestOn(r) // seen, and not answered
			})
			p := proxyTo(t, address, nil)
			w := p.dial(t, lined("GET / HTTP/1.1|Host: a||"))
			w.WantStatus(200)
			await.Until(t, "kept", func() bool { return p.pool.Idle() == 1 })
			w.Send(lined(c.said))
			if res, _ := w.ReadResponse("GET"); res.StatusCode != c.want {
				t.Errorf("%q: got %d; want %d", c.said, res.StatusCode, c.want)
			}
		}
	})
}

// A connection that the upstream has closed, or on which it has said more than
// its answer, carries nothing any more: not even the first byte of a request.
func TestForward_UnsolicitedBytesAreNotResponses(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, more := range []string{"close", "HTTP/1.1 200 OK|Content-Length: 4||evil", "x", "HTTP/1.1 408 Request Timeout|Content-Length: 0||"} {
			requests := make(chan string, 10)
			said := make(chan struct{}, 10)
			address := sockettest.Upstream(t, func(nc net.Conn, r *bufio.Reader) {
				request, _ := requestOn(r)
				requests <- request
				_, _ = io.WriteString(nc, okAnswer)
				if more == "close" {
					nc.Close()
				} else {
					_, _ = io.WriteString(nc, lined(more))
				}
				said <- struct{}{}
				if again, _ := requestOn(r); again != "" {
					t.Errorf("%q: the connection was used again", more)
				}
			})
			p := proxyTo(t, address, nil)
			w := p.dial(t, "")
			for range 3 {
				w.Send(lined("POST / HTTP/1.1|Host: a|Content-Length: 2||hi"))
				if _, body := w.WantStatus(200); body != "ok" {
					t.Errorf("%q: got %q", more, body)
				}
				await.Value(t, said, "leftover")
				await.Value(t, requests, "request")
			}
		}
	})
}

// Answers without a body have none, whatever follows them.
func TestForward_BytesAfterBodylessResponse(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct{ method, answer string }{
			{"GET", "HTTP/1.1 204 No Content||HTTP/1.1 200 OK|Content-Length: 4||evil"},
			{"HEAD", "HTTP/1.1 200 OK|Content-Length: 4||evil"},
			{"GET", "HTTP/1.1 304 Not Modified|Content-Length: 4||evil"},
			{"GET", "HTTP/1.1 200 OK|Content-Length: 2||okevil"},
			{"GET", "HTTP/1.1 200 OK|Transfer-Encoding: chunked||2|ok|0||evil"},
		} {
			address, _ := answering(t, lined(c.answer))
			p := proxyTo(t, address, nil)
			w := p.dial(t, "")
			for range 3 {
				w.Send(lined(c.method + " / HTTP/1.1|Host: a||"))
				if _, body := w.ReadResponse(c.method); body != "" && body != "ok" {
					t.Errorf("%s %q: got %q", c.method, c.answer, body)
				}
			}
			if p.pool.Idle() != 0 {
				t.Errorf("%s %q: the connection was kept", c.method, c.answer)
			}
		}
	})
}

// What cannot be understood is not passed on.
func TestForward_BadResponses(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, answer := range []string{
			"HTTP/1.1 2000 OK||", "HTTP/1.1 200 OK|Content-Length: 5|Transfer-Encoding: chunked||0||", "HTTP/1.1 200 OK|X y: 1||", "nonsense||",
			"HTTP/1.1 101 Switching Protocols|Connection: Upgrade|Upgrade: websocket||", "HTTP/1.1 200 OK|Transfer-Encoding: gzip||", "HTTP/1.1 200 O",
		} {
			p := proxyTo(t, originOnce(t, lined(answer)), nil)
			if res, _ := p.dial(t, lined("GET / HTTP/1.1|Host: a||")).ReadResponse("GET"); res.StatusCode != 502 {
				t.Errorf("%q: got %d; want 502", answer, res.StatusCode)
			}
			if p.pool.Idle() != 0 {
				t.Errorf("%q: the connection was kept", answer)
			}
		}
	})
}

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
