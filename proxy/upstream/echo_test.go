package upstream

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
)

func TestEcho_DescribesTheForwardedRequest(t *testing.T) {
	h := startProxy(t, mustPool(t, Config{Echo: true, Pseudonym: "weir-test"}), func(asked *Request, _ received) {
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
	h := startProxy(t, mustPool(t, Config{Echo: true}), nil)
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
	h := startProxy(t, mustPool(t, Config{Echo: true}), nil)
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
