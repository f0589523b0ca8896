package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/sockettest"
)

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

func TestResponse_WithoutBody(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		for _, c := range []struct{ request, answer, length string }{
			{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "7"},
			{"GET", "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", ""},
			{"GET", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", ""},
		} {
			url, _ := startReplying(t, c.answer)
			h := startProxy(t, poolOf(t, url), nil)
			_, r := h.dial(t, c.request+" / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			raw, err := io.ReadAll(r)
			if err != nil || !strings.HasSuffix(string(raw), "\r\n\r\n") || strings.Count(string(raw), "\r\n\r\n") != 1 {
				t.Errorf("%s: client reads %q, %v; want a head alone", c.answer, raw, err)
			}
			if c.length != "" && !strings.Contains(string(raw), "Content-Length: "+c.length+"\r\n") {
				t.Errorf("%s: length is lost in %q", c.answer, raw)
			}
			if got := h.result(t); got.Kind != OK {
				t.Errorf("result %+v", got)
			}
		}
	})
}

func TestResponse_InterimIsForwarded(t *testing.T) {
	sockettest.OverBoth(t, func(t testing.TB) {
		const hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: X-Own\r\nX-Own: 1\r\n\r\n"
		url, _ := startReplying(t, "HTTP/1.1 100 Continue\r\n\r\n"+hints+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		pool := poolOf(t, url)
		h := startProxy(t, pool, func(asked *Request, _ received) {
			asked.OnHeader = func(_ int, h *http1.Fields) { h.Set("X-Caller", "1") }
		})

		_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		raw, _ := io.ReadAll(r)
		early, rest, _ := strings.Cut(string(raw), "\r\n\r\n")
		if !strings.HasPrefix(early, "HTTP/1.1 103 ") || !strings.Contains(early, "Link: </a.css>") || strings.Contains(early, "X-Own") {
			t.Errorf("first answer %q, want 103 and no fields of the upstream's connection", early)
		}
		if !strings.HasPrefix(rest, "HTTP/1.1 200 ") || !strings.Contains(rest, "X-Caller: 1\r\n") || strings.Contains(rest, "Link") || !strings.HasSuffix(rest, "\r\n\r\nok") {
			t.Errorf("final answer %q, want 200, the caller's field and the body", rest)
		}

		_, r = h.dial(t, "GET / HTTP/1.0\r\nHost: a\r\n\r\n")
		if raw, _ := io.ReadAll(r); !strings.HasPrefix(string(raw), "HTTP/1.1 200 ") {
			t.Errorf("a client of HTTP/1.0 reads %q, want no 1xx", raw)
		}
	})
}

func TestResponse_ExpectContinue(t *testing.T) {
	const request = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
	t.Run("the upstream wants the body", func(t *testing.T) {
		url := startBackend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		h := startProxy(t, poolOf(t, url), nil)
		c, r := h.dial(t, request)
		if line := readHead(r); line != "HTTP/1.1 100 Continue\r\n\r\n" {
			t.Fatalf("client reads %q", line)
		}
		send(t, c, "body")
		if res, body := answer(t, r, "POST"); res.StatusCode != 200 || body != "body" {
			t.Errorf("got %s %q", res.Status, body)
		}
	})
	t.Run("the upstream does not", func(t *testing.T) {
		url, _ := startReplying(t, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
		h := startProxy(t, poolOf(t, url), nil)
		_, r := h.dial(t, request)
		if res, _ := answer(t, r, "POST"); res.StatusCode != 401 || !res.Close {
			t.Errorf("got %s, close %v; want the final answer at once", res.Status, res.Close)
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
