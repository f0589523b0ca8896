package upstream

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

func TestForward_ResponseIsNotBuffered(t *testing.T) {
	for name, head := range map[string]string{
		"event stream": "Content-Type: text/event-stream\r\nContent-Length: 10\r\n\r\n",
		"known length": "Content-Length: 10\r\n\r\n",
		"until close":  "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			more := make(chan bool)
			url := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				readHead(r)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
				for _, piece := range []string{"first", "after"} {
					if _, ok := <-more; !ok {
						return
					}
					_, _ = io.WriteString(c, piece)
				}
			})
			h := startProxy(t, poolOf(t, url), nil)
			_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			defer close(more)
			res, err := http.ReadResponse(r, nil) // the header does not wait for a body
			if err != nil {
				t.Fatal(err)
			}
			for _, piece := range []string{"first", "after"} {
				more <- true
				got := make([]byte, 5)
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
					t.Fatalf("piece %q, %v; want %q", got, err, piece)
				}
			}
		})
	}
}

func TestForward_ClientGoneAbortsUpstreamRequest(t *testing.T) {
	for name, begin := range map[string]bool{"before the answer": false, "in its middle": true} {
		t.Run(name, func(t *testing.T) {
			arrived, ended := make(chan bool, 1), make(chan bool, 1)
			url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
				if begin {
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
				}
				arrived <- true
				<-r.Context().Done()
				ended <- true
			})
			h := startProxy(t, poolOf(t, url), nil)
			c, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			await.Value(t, arrived, "request")
			if begin {
				if _, err := http.ReadResponse(r, nil); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			await.Value(t, ended, "end of the upstream's work")
			got := h.result(t)
			if got.Kind != ClientGone || got.HeaderSent != begin || !errors.Is(got.Err, http1.ErrAborted) {
				t.Errorf("result %+v, want that the client left", got)
			}
		})
	}
}

func TestForward_ClientErrorsAreNotUpstreamErrors(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	h := startProxy(t, poolOf(t, url), func(_ *Request, r received) {
		if firstOf(r, "X-Max") != "" {
			r.limit(3)
		}
	})
	for name, c := range map[string]struct {
		request string
		want    ResultKind
		status  int
	}{
		"chunk size":    {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", BadRequest, 400},
		"chunk end":     {"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n", BadRequest, 400},
		"too much":      {"X-Max: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", BodyTooLarge, 413},
		"too much (CL)": {"X-Max: 1\r\nContent-Length: 5\r\n\r\nabcde", BodyTooLarge, 413},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\n"+c.request)
			res, _ := answer(t, r, "POST")
			if got := h.result(t); got.Kind != c.want || got.HeaderSent || res.StatusCode != c.status {
				t.Errorf("result %+v, status %s; want kind %d, status %d", got, res.Status, c.want, c.status)
			}
			if c.want == BadRequest {
				if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
					t.Errorf("connection goes on with %q, %v; want its end", rest, err)
				}
			}
		})
	}
	t.Run("half a body", func(t *testing.T) {
		c, _ := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
		c.Close()
		if got := h.result(t); got.Kind != ClientGone {
			t.Errorf("result %+v, want that the client left", got)
		}
	})
}

func TestForward_InvalidBytesInResponseBody(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex()
			_ = rc.Flush()
			if _, err := io.Copy(w, r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		})
		h := startProxy(t, poolOf(t, url), nil)
		c, r := h.dial(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		send(t, c, "zz\r\n")
		if _, err := io.ReadAll(res.Body); err == nil {
			t.Error("the answer looks whole")
		}
		if got := h.result(t); got.Kind != BadRequest || !got.HeaderSent || got.Status != 200 {
			t.Errorf("result %+v, want that the client is to blame", got)
		}
	})
}

func TestForward_TrailersInBothDirections(t *testing.T) {
	seen := make(chan http.Header, 1)
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum, X-Forwarded-For")
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r.Trailer
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
		w.Header().Set("X-Forwarded-For", "6.6.6.6")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		w.Header().Set(http.TrailerPrefix+"Set-Cookie", "a=b")
	})
	h := startProxy(t, poolOf(t, url), nil)
	res, _ := h.ask(t, "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: X-Mine\r\nTransfer-Encoding: chunked\r\n"+
		"Trailer: X-Md5, X-Mine, X-Forwarded-For, Authorization, X_Real_Ip, X.Forwarded-For\r\n\r\n1\r\na\r\n0\r\nX-Md5: abc\r\nX_Real_Ip: 1\r\nX.Forwarded-For: 6.6.6.6\r\nX-Mine: 1\r\nX-Forwarded-For: 6.6.6.6\r\nAuthorization: x\r\n\r\n")
	if got := await.Value(t, seen, "request"); len(got) != 1 || got.Get("X-Md5") != "abc" {
		t.Errorf("upstream sees trailers %v, want X-Md5 alone", got)
	}
	if got := res.Trailer; len(got) != 2 || got.Get("X-Sum") != "42" || got.Get("X-Late") != "1" {
		t.Errorf("client sees trailers %v, want X-Sum and X-Late", got)
	}
}

func TestResponse_Refused(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   ResultKind
	}{
		"nothing":          {"", ConnectionReset},
		"half a head":      {"HTTP/1.1 200 OK\r\nA: b\r\n", ConnectionReset},
		"not HTTP":         {"220 mail ready\r\n\r\n", BadResponse},
		"status 042":       {"HTTP/1.1 042 Low\r\nContent-Length: 0\r\n\r\n", BadResponse},
		"two lengths":      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", BadResponse},
		"bad length":       {"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", BadResponse},
		"endless head":     {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", maxHeader+1), BadResponse},
		"101 unasked":      {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", BadResponse},
		"101 without name": {"HTTP/1.1 101 Switching Protocols\r\n\r\n", BadResponse},
	} {
		t.Run(name, func(t *testing.T) {
			url, _ := startReplying(t, c.answer)
			h := startProxy(t, poolOf(t, url), nil)
			if res, _ := h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); res.StatusCode != http.StatusBadGateway {
				t.Errorf("client sees %s", res.Status)
			}
			got := h.result(t)
			if got.Kind != c.want || got.Err == nil || got.HeaderSent || got.Status != 0 || got.Target != url {
				t.Errorf("result %+v, want kind %d", got, c.want)
			}
		})
	}
}

func TestResponse_Fields(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		url, _ := startReplying(t, "HTTP/1.1 299 Odd\r\nConnection: X-Own, RateLimit\r\nX-Own: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\n"+
			"Alt-Svc: h3=\":443\"\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 6\r\n\r\n<html>")
		calls := 0
		h := startProxy(t, poolOf(t, url), func(asked *Request, _ received) {
			asked.OnHeader = func(_ int, h *http1.Fields) {
				calls++
				h.Set("RateLimit", `"a";r=1`)
			}
		})
		res, body := h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if got := h.result(t); calls != 1 || got.Kind != OK || got.Status != 299 || !got.HeaderSent || got.FirstByte <= 0 || got.Target != url {
			t.Errorf("OnHeader called %d times, result %+v", calls, got)
		}
		if res.StatusCode != 299 || body != "<html>" {
			t.Errorf("got %s %q", res.Status, body)
		}
		for field, want := range map[string]string{
			"X-Own": "", "Keep-Alive": "", "Proxy-Authenticate": "", "Alt-Svc": "", "Set-Cookie": "a=1|b=2",
			"Ratelimit": `"a";r=1`, "Content-Type": "", "Content-Length": "6",
		} {
			if got := strings.Join(res.Header[field], "|"); got != want {
				t.Errorf("%s: %q, want %q", field, got, want)
			}
		}
		if _, err := http.ParseTime(res.Header.Get("Date")); err != nil {
			t.Errorf("Date was not added: %v", err)
		}
	})
}

// websocketBackend answers any upgrade with 101 and echoes lines from then on.
// It counts requests and lines.
func websocketBackend(t *testing.T, requests, lines *atomic.Int32) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			requests.Add(1)
			protocol := req.Header.Get("Upgrade")
			if protocol == "" {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				continue
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Own\r\nX-Own: 1\r\nUpgrade: "+protocol+"\r\nContent-Length: 0\r\nSec-WebSocket-Accept: x\r\n\r\n")
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				lines.Add(1)
				_, _ = io.WriteString(c, "echo "+line)
			}
		}
	})
}

func TestForward_UpgradesOnlyAllowedWebSocket(t *testing.T) {
	for name, c := range map[string]struct {
		allowed bool
		method  string
		version string
		lines   string
		leaves  bool
	}{
		"websocket":              {true, "GET", "1.1", "Connection: Upgrade\r\nUpgrade: WebSocket\r\n", true},
		"websocket among others": {true, "GET", "1.1", "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nTE: trailers\r\n", true},
		"route does not allow":   {false, "GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", false},
		"h2c":                    {true, "GET", "1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n", false},
		"h2c behind websocket":   {true, "GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n", false},
		"h2c on another line":    {true, "GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", false},
		"not in Connection":      {true, "GET", "1.1", "Upgrade: websocket\r\n", false},
		"TLS":                    {true, "GET", "1.1", "Connection: Upgrade\r\nUpgrade: tls/1.0\r\n", false},
		"HTTP/1.0":               {true, "GET", "1.0", "Connection: Upgrade, keep-alive\r\nUpgrade: websocket\r\n", false},
		"POST":                   {true, "POST", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n", false},
		"get":                    {true, "get", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", false},
		"with a body":            {true, "GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			var requests, lines atomic.Int32
			h := startProxy(t, poolOf(t, websocketBackend(t, &requests, &lines)), func(asked *Request, _ received) {
				asked.WebSocket = c.allowed
				asked.OnHeader = func(_ int, h *http1.Fields) { h.Set("X-Quota", "1") }
			})
			conn, r := h.dial(t, c.method+" / HTTP/"+c.version+"\r\nHost: a\r\n"+c.lines+"\r\n")
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !c.leaves {
				_, _ = io.Copy(io.Discard, res.Body)
				send(t, conn, "smuggled\n")
				_, _ = io.Copy(io.Discard, r)
				if res.StatusCode != 200 || lines.Load() != 0 || requests.Load() != 1 {
					t.Errorf("got %s, %d requests, %d lines behind the proxy; want plain HTTP", res.Status, requests.Load(), lines.Load())
				}
				return
			}
			if res.StatusCode != 101 || res.Header.Get("X-Quota") != "1" || res.Header.Get("X-Own") != "" || res.Header["Content-Length"] != nil || res.Header.Get("Sec-WebSocket-Accept") != "x" {
				t.Errorf("got %s %v", res.Status, res.Header)
			}
			for _, line := range []string{"a\n", "b\n"} {
				send(t, conn, "%s", line)
				if got, err := r.ReadString('\n'); got != "echo "+line {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			conn.Close()
			if got := h.result(t); got.Kind != OK || got.Status != 101 || !got.HeaderSent {
				t.Errorf("result %+v", got)
			}
		})
	}
}

// A panic of the caller's is the caller's, and leaves nothing busy.
func TestForward_CallerPanics(t *testing.T) {
	url, _ := startReplying(t, okEmpty)
	pool := poolOf(t, url)
	defer pool.Close()
	defer func() {
		if cause := recover(); cause != "mistake" {
			t.Errorf("panic %v, want the caller's own", cause)
		}
		if n := pool.load(); n != 0 {
			t.Errorf("%d requests are under way, want none", n)
		}
	}()
	asked := netRequestOf(request(t, "http://a/"))
	asked.OnHeader = func(int, *http1.Fields) { panic("mistake") }
	pool.Forward(t.Context(), asked, NewHTTP2Sink(t.Context(), silent{http.Header{}}))
}
