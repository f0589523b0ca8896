package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
)

func TestEcho_DescribesTheForwardedRequest(t *testing.T) {
	h := startProxy(t, mustPool(t, Config{Upstream: config.Upstream{Echo: true}, Pseudonym: "weir-test"}), func(asked *Request, _ received) {
		asked.RequestID = "r1"
		asked.OnHeader = func(_ int, h *http1.Fields) { h.Set("X-Quota", "1") }
	})
	res, body := h.ask(t, "POST /v1/a%2Fb?x=1;y HTTP/1.1\r\nHost: api.example\r\nX-Phone: 1\r\nConnection: X-Mine\r\nX-Mine: 1\r\nContent-Length: 5\r\n\r\nhello")
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/json" || res.Header.Get("X-Quota") != "1" {
		t.Errorf("got %s %v", res.Status, res.Header)
	}
	var e echoResponse
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if e.Method != "POST" || e.Host != "api.example" || e.Path != "/v1/a%2Fb" || e.Query != "x=1;y" || e.Body != "hello" || e.Length != 5 {
		t.Errorf("echo %+v", e)
	}
	if http.Header(e.Headers).Get("X-Phone") != "1" || http.Header(e.Headers).Get("X-Mine") != "" || http.Header(e.Headers).Get("Via") != "1.1 weir-test" || http.Header(e.Headers).Get("X-Request-Id") != "r1" {
		t.Errorf("echo of fields %v", e.Headers)
	}
	if got := h.result(t); got.Kind != OK || got.Status != 200 || got.Target != "echo" {
		t.Errorf("result %+v", got)
	}
}

func TestEcho_Bodies(t *testing.T) {
	h := startProxy(t, mustPool(t, Config{Upstream: config.Upstream{Echo: true}}), nil)
	for name, c := range map[string]struct {
		body         string
		text, base64 int
	}{
		"none":      {"", 0, 0},
		"text":      {"你好", 6, 0},
		"not text":  {"\xff\x00", 0, 2},
		"very long": {strings.Repeat("x", maxEcho+100_000), maxEcho, 0},
	} {
		res, err := http.Post(h.URL, "", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		var e echoResponse
		err = json.NewDecoder(res.Body).Decode(&e)
		res.Body.Close()
		if err != nil || e.Length != int64(len(c.body)) || len(e.Body) != c.text || len(e.Base64) != c.base64 {
			t.Errorf("%s: length %d, %d of text, %d not, %v", name, e.Length, len(e.Body), len(e.Base64), err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestEcho_HeadAndBadBody(t *testing.T) {
	h := startProxy(t, mustPool(t, Config{Upstream: config.Upstream{Echo: true}}), nil)
	if res, body := h.ask(t, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"); res.StatusCode != 200 || body != "" || res.ContentLength <= 0 {
		t.Errorf("got %s %q, length %d", res.Status, body, res.ContentLength)
	}
	h.result(t)
	if res, _ := h.ask(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"); res.StatusCode != 400 {
		t.Errorf("status %s for bad chunking, want 400", res.Status)
	}
	if got := h.result(t); got.Kind != BadRequest {
		t.Errorf("result %+v", got)
	}
	res, body := h.ask(t, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 7\r\n\r\n")
	var e echoResponse
	if err := json.Unmarshal([]byte(body), &e); err != nil || http.Header(e.Trailer).Get("X-Sum") != "7" {
		t.Errorf("got %s %s, %v; want the trailer", res.Status, body, err)
	}
}

// A recording transport keeps what a target would read, and answers 200.
type recording struct {
	*http1Transport
	sent bytes.Buffer
	done chan struct{}
}

// newRecorded is a pool whose only connection is recorded.
func newRecorded(t *testing.T) (*Pool, *recording) {
	pool := poolOf(t, "http://target.invalid")
	r := &recording{http1Transport: newHTTP1(pool.config, pool.backends), done: make(chan struct{})}
	r.pools[0] = r.client.NewPool(http1.Endpoint{Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go r.serve(theirs)
		return ours, nil
	}})
	pool.currentTransport.Store(new(transport(r)))
	return pool, r
}

// serve answers what can be read as one request, and records it to the end.
func (r *recording) serve(c net.Conn) {
	defer close(r.done)
	defer c.Close()
	in := bufio.NewReader(io.TeeReader(c, &r.sent))
	if got, err := http.ReadRequest(in); err == nil {
		_, _ = io.Copy(io.Discard, got.Body)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	_, _ = io.Copy(io.Discard, in)
}

// FuzzForward: whatever a client writes, the target reads exactly one request,
// with the body that the client sent, from the peer that it came from, and no
// wish to leave HTTP.
func FuzzForward(f *testing.F) {
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /a%2F?x;y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-A\r\n\r\n3\r\nabc\r\n0\r\nX-A: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, X-Forwarded-For\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nX_Forwarded_For: 6.6.6.6\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\nVia: 1.1 b\r\nForwarded: for=x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
		"GET http://b/c HTTP/1.0\r\nExpect: 100-continue\r\nTE: trailers\r\n\r\n",
	} {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		in, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(request)))
		if err != nil {
			return
		}
		in.RemoteAddr = "10.9.8.7:6"
		pool, w := newRecorded(t)
		defer pool.Close()
		if res := forwardNet(pool, silent{http.Header{}}, in); res.Kind != OK {
			return
		}
		<-w.done
		r := bufio.NewReader(&w.sent)
		got, err := http.ReadRequest(r)
		if err != nil {
			t.Fatalf("target cannot read the request: %v", err)
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil {
			t.Fatalf("target cannot read the body: %v", err)
		}
		if rest, _ := io.ReadAll(r); len(rest) > 0 {
			t.Fatalf("target reads %q after the request", rest)
		}
		if got.Method != in.Method || got.URL.RawQuery != in.URL.RawQuery {
			t.Fatalf("target reads %s ?%s, was %s ?%s", got.Method, got.URL.RawQuery, in.Method, in.URL.RawQuery)
		}
		for name, values := range got.Header {
			if n := strings.ReplaceAll(name, "_", "-"); strings.EqualFold(n, "X-Forwarded-For") && (len(values) != 1 || values[0] != "10.9.8.7") {
				t.Fatalf("%s: %q", name, values)
			}
		}
		if got.Header.Get("X-Forwarded-For") == "" || got.Header["Upgrade"] != nil || got.Header["Http2-Settings"] != nil {
			t.Fatalf("fields %v", got.Header)
		}
	})
}
