package test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/logtest"
)

// Whoever may upgrade a connection to another protocol speaks to the upstream
// behind the limiter's back.
func TestForward_NoProtocolIsSmuggled(t *testing.T) {
	t.Parallel()
	for _, ask := range []string{
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
		"Connection: Upgrade\r\nUpgrade: tls/1.0\r\n",
		"Connection: upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
	} {
		// The upstream is only too willing.
		api := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
			if protocol := r.Header.Get("Upgrade"); protocol != "" {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", protocol)
				w.WriteHeader(http.StatusSwitchingProtocols)
				return
			}
			if r.Header.Get("HTTP2-Settings") != "" {
				t.Errorf("HTTP2-Settings reached the upstream")
			}
		})
		w := start(t, "routes:\n  - {match: {path: /*}, upstream: "+api.URL+"}\n")
		status, _ := sendRaw(t, w, "GET / HTTP/1.1\r\nHost: x\r\n"+ask+"\r\n")
		if status != http.StatusOK {
			t.Errorf("%q is answered %d, want 200 as if nobody had asked to upgrade", ask, status)
		}
	}
}

// sendRaw sends exactly these bytes and returns the answer.
func sendRaw(t *testing.T, w *weir, request string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		return res.StatusCode, ""
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return res.StatusCode, string(b)
}

func TestForward_ClientGoneCancelsTheUpstream(t *testing.T) {
	t.Parallel()
	arrived, gone := make(chan struct{}), make(chan struct{})
	api := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	w := start(t, "routes:\n  - {match: {path: /slow}, upstream: "+api.URL+"}\n")
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	go http.DefaultClient.Do(req)
	<-arrived
	leave()
	select {
	case <-gone:
	case <-time.After(testTimeout):
		t.Fatal("the upstream still works for a client that has left")
	}
	w.WaitForLog("request", func(l logtest.Line) bool { return l.Text("status") == "499" })
}

func TestForward_FaultsOfUpstreamsAreProblems(t *testing.T) {
	t.Parallel()
	slow := startBackend(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	w := start(t, fmt.Sprintf(`upstreams:
  gone: http://127.0.0.1:1
  slow: {targets: [%q], timeouts: {response: 100ms}}
routes:
  - {match: {path: /gone}, upstream: gone}
  - {match: {path: /slow}, upstream: slow}
  - {match: {path: /get, methods: GET}, upstream: gone}
`, slow.URL))
	for path, want := range map[string]int{"/gone": 502, "/slow": 504, "/get": 405, "/nothing": 404} {
		status, header, body := exchange(t, http.MethodPost, w.URL+path, nil)
		var problem struct {
			Status        int
			Title, Detail string
		}
		err := json.Unmarshal([]byte(body), &problem)
		if status != want || err != nil || problem.Status != want || problem.Title == "" || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s is answered %d %v %s, want %d as a problem", path, status, header, body, want)
		}
		if strings.Contains(body, "127.0.0.1") || strings.Contains(body, "dial") {
			t.Errorf("%s tells the client about our inside: %s", path, body)
		}
	}
}

// The first part of an answer reaches the client before the upstream has
// written the second, and the same the other way round.
func TestForward_StreamsBothWays(t *testing.T) {
	api := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		in := bufio.NewReader(r.Body)
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			text, err := in.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(w, "data: %s\n", text)
			control.Flush()
		}
	})
	w := start(t, "routes:\n  - {match: {path: /talk}, upstream: "+api.URL+"}\n")
	r, body := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL+"/talk", r)
	if err != nil {
		t.Fatal(err)
	}
	go io.WriteString(body, "one\n")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := bufio.NewReader(res.Body)
	for _, word := range []string{"one", "two", "three"} {
		if word != "one" {
			io.WriteString(body, word+"\n")
		}
		if text, err := out.ReadString('\n'); err != nil || text != "data: "+word+"\n" {
			t.Fatalf("after %q the answer goes on with %q %v", word, text, err)
		}
		out.ReadString('\n')
	}
	body.Close()
}

// What is matched is what is forwarded, in one spelling; the query is not
// touched.
func TestForward_PathMatchedIsPathSent(t *testing.T) {
	paths := make(chan string, 1)
	api := startBackend(t, func(_ http.ResponseWriter, r *http.Request) { paths <- r.RequestURI })
	w := start(t, "routes:\n  - {match: {path: /a/*}, upstream: "+api.URL+"}\n")
	for sent, want := range map[string]string{
		"/a/b":            "/a/b",
		"/a/./b":          "/a/b",
		"/x/../a/b":       "/a/b",
		"/a/%62":          "/a/b",
		"/a//b":           "/a/b",
		"/a/b?x=1;y=%zz+": "/a/b?x=1;y=%zz+",
	} {
		if status, body := sendRaw(t, w, "GET "+sent+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusOK {
			t.Errorf("%s is answered %d %s, want 200", sent, status, body)
			continue
		}
		if got := <-paths; got != want {
			t.Errorf("%s is forwarded as %s, want %s", sent, got, want)
		}
	}
	for _, sent := range []string{"/a/../b", "/b", "/a/%2e%2e/b"} {
		if status, _ := sendRaw(t, w, "GET "+sent+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusNotFound {
			t.Errorf("%s is answered %d, want 404", sent, status)
		}
	}
}

// Only a trusted proxy may say where a request comes from.
func TestForward_AddressCannotBeForged(t *testing.T) {
	config := func(trusted string) string {
		return fmt.Sprintf(`client_ip: {trusted_proxies: [%s]}
upstreams: {demo: echo}
routes:
  - match: {path: /}
    upstream: demo
    limits: [{key: client_ip, rate: 1/1h}]
`, trusted)
	}
	from := func(w *weir, addr string) int {
		status, _ := do(t, http.MethodGet, w.URL+"/", http.Header{"X-Forwarded-For": {addr}})
		return status
	}
	w := start(t, config(""))
	if a, b := from(w, "192.0.2.1"), from(w, "192.0.2.2"); a != 200 || b != 429 {
		t.Errorf("an untrusted client that changes X-Forwarded-For is answered %d, %d; want 200, 429", a, b)
	}
	w = start(t, config("127.0.0.0/8"))
	if a, b, c := from(w, "192.0.2.1"), from(w, "192.0.2.2"), from(w, "6.6.6.6, 192.0.2.1"); a != 200 || b != 200 || c != 429 {
		t.Errorf("behind a trusted proxy the answers are %d, %d, %d; want 200, 200, 429", a, b, c)
	}
	if a, b := from(w, "2001:db8::1"), from(w, "2001:db8::2"); a != 200 || b != 429 {
		t.Errorf("two addresses of one IPv6 /64 are answered %d, %d; want 200, 429", a, b)
	}
}
