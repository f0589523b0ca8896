package upstream

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// wire writes a request as it would go to a target, and answers 200.
type wire struct{ sent bytes.Buffer }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Write(&w.sent); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (w *wire) CloseIdleConnections() {}

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
		w := &wire{}
		pool := mustPool(t, Config{Echo: true, Pseudonym: "weir-test"})
		pool.transport.Store(&transport{w})
		if res := pool.Forward(silent{http.Header{}}, in, tripOf(in)); res.Kind != OK {
			return
		}
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
