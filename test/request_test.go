package test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
)

// stores are the configurations of every kind of store.
func stores(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"memory": "", "redis": redisYAML(redistest.Start(t).Addr)}
}

// answering is a server that answers with the status that the request asks for.
func answering(t *testing.T) *countingBackend {
	t.Helper()
	return startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cut") != "" { // says more than it sends
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		status, err := strconv.Atoi(r.Header.Get("Want"))
		if err != nil {
			status = http.StatusOK
		}
		w.WriteHeader(status)
	})
}

// A client that gets a 500 under refund_on and asks again at once is not refused because of
// it: the refund comes before the answer, over each protocol and store.
func TestRefund_ComesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	n := rounds.Of(100) // of each path
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("streamed") {
			w.WriteHeader(http.StatusInternalServerError)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, strings.Repeat("x", 10_000))
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(upstream.Close)
	for name, store := range map[string]string{"memory": "", "redis": redisYAML(redistest.Start(t).Addr)} {
		t.Run(name, func(t *testing.T) {
			w := start(t, store+`upstreams: {api: "`+upstream.URL+`", gone: "http://127.0.0.1:1"}
routes:
  - {name: send, match: {path: /send}, upstream: api, refund_on: {status: [5xx]}, limits: [{name: phone, key: "header:X-Phone", rates: [1/1h, 3/24h]}]}
  - {name: gone, match: {path: /gone}, upstream: gone, refund_on: {errors: [connect]}, limits: [{name: phone, key: "header:X-Phone", rate: 1/1h}]}
  - {name: guesses, match: {path: /guesses}, upstream: api, limits: [{name: phone, key: "header:X-Phone", rate: 1/1h, count: {status: [4xx]}}]}
`)
			for path, want := range map[string]int{"/send": 500, "/send?streamed": 500, "/gone": 502, "/guesses": 500} {
				refused := 0
				for range n {
					status, _ := do(t, http.MethodPost, w.URL+path, http.Header{"X-Phone": {path}})
					if status == http.StatusTooManyRequests {
						refused++
					} else if status != want {
						t.Fatalf("%s: %d; want %d", path, status, want)
					}
				}
				if refused > 0 {
					t.Errorf("%s: %d of %d were refused", path, refused, n)
				}
			}
		})
	}
}

// A client that follows the redirect from http to https arrives, at the port that the system chose.
func TestEdge_HTTPBecomesHTTPS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	write(t, filepath.Join(dir, "weir.yaml"), `listen: {http: "127.0.0.1:0", https: "127.0.0.1:0", redirect_https: true, tls: {cert: cert.pem, key: key.pem}}
admin: {http: "127.0.0.1:0"}
routes: [{name: all, match: {path: /*}, upstream: echo}]
`)
	w := startWith(t, dir)
	secure := w.WaitForLog("serving", func(logtest.Line) bool { return true }).Text("https")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Post(w.URL+"/a%2Cb?x=1", "text/plain", strings.NewReader("body"))
	check(t, err)
	answer.Body.Close()
	if at := answer.Request.URL; answer.StatusCode != http.StatusOK || answer.Request.Method != "POST" || at.String() != "https://"+secure+"/a%2Cb?x=1" {
		t.Errorf("%s %s is answered with %d; want 200 for a POST at %s", answer.Request.Method, at, answer.StatusCode, secure)
	}
}

// Whatever clients send, the number of series stays what the configuration
// makes it.
func TestAbuse_ClientsCannotMakeMetrics(t *testing.T) {
	w := start(t, smsYAML("5/1h", ""))
	series := func() int {
		n := 0
		for text := range strings.Lines(w.metrics()) {
			if strings.HasPrefix(text, "weir_") {
				n++
			}
		}
		return n
	}
	odd := func(n int) {
		do(t, fmt.Sprintf("M%dX", n), w.URL+"/v1/sms/send", nil)
		do(t, http.MethodGet, fmt.Sprintf("%s/path-%d?q=%d", w.URL, n, n), http.Header{"User-Agent": {fmt.Sprint(n)}})
		if status, body := rawResponse(t, w, fmt.Sprintf("GET / HTTP/1.1\r\nHost: h%d.example\r\n\r\n", n)); status == 0 {
			t.Fatal(body)
		}
		w.send(fmt.Sprint("p", n))
	}
	odd(0)
	before := series()
	for n := range 50 {
		odd(n + 1)
	}
	if after := series(); after != before {
		t.Errorf("50 odd requests made %d series out of %d", after, before)
	}
}

// A name in the log is a name, whatever it is made of.
func TestAbuse_LogLinesCannotBeForged(t *testing.T) {
	w := start(t, smsYAML("1/1h", ""))
	do(t, http.MethodGet, w.URL+"/%0a%7B%22message%22:%22forged%22%7D%0a", http.Header{"X-Request-Id": {"x\",\"message\":\"forged"}})
	w.WaitForLog("request", nil)
	if n := w.log.Count("forged"); n != 0 {
		t.Errorf("a client wrote %d lines of the log", n)
	}
}

// What people are counted by is nowhere to be read: not in figures, not in
// lines, not in the store, not in an answer, whatever goes wrong.
func TestPrivacy_NoRawKeyLeaves(t *testing.T) {
	t.Parallel()
	const phone = "+86 138 0013 8000"
	server := redistest.Start(t)
	silent := startBackend(t, func(http.ResponseWriter, *http.Request) {})
	w := start(t, redisYAML(server.Addr)+`upstreams: {demo: "`+silent.URL+`", gone: "http://127.0.0.1:1"}
routes:
  - {name: send, match: {path: /send}, upstream: demo, limits: [{key: {from: "header:X-Phone", normalize: digits}, rate: 1/1h}]}
  - {name: gone, match: {path: /gone}, upstream: gone, limits: [{key: "header:X-Phone", rate: 9/1h}]}
  - {name: query, match: {path: /query}, upstream: demo, limits: [{key: "query:phone", rate: 1/1h}]}
  - {name: path, match: {path: "/path/{phone}"}, upstream: demo, limits: [{key: "path:phone", rate: 1/1h}]}
`)
	header := http.Header{"X-Phone": {phone}}
	var bodies []string
	for range 2 {
		do(t, http.MethodPost, w.URL+"/send", header)
		do(t, http.MethodPost, w.URL+"/query?phone=%2B86+138+0013+8000", nil)
		do(t, http.MethodPost, w.URL+"/path/+8613800138000", nil)
	}
	for _, ask := range []struct {
		url    string
		header http.Header
	}{
		{"/send", header}, // refused
		{"/gone", header}, // not forwarded
		{"/query?phone=%2B86+138+0013+8000&phone=2", nil}, // ambiguous
		{"/query?phone=%2B8613800138000;x", nil},
		{"/send", http.Header{"X-Phone": {phone, phone}}},
		{"/path/+8613800138000", nil},
	} {
		_, body := do(t, http.MethodPost, w.URL+ask.url, ask.header)
		bodies = append(bodies, body)
	}
	stored := redisKeys(t, redisClient(t, server.Addr), "*")
	if len(stored) == 0 || slices.ContainsFunc(stored, func(name string) bool { return !strings.HasPrefix(name, "weir:") }) {
		t.Errorf("the keys in Redis are %q; want some, all with the prefix", stored)
	}
	server.Kill() // and when the store is away
	for range 2 {
		_, body := do(t, http.MethodPost, w.URL+"/send", header)
		bodies = append(bodies, body)
	}
	await.Until(t, "all lines are written", func() bool { return w.log.Count("request") >= 14 })
	for what, text := range map[string]string{"log": w.log.String(), "metrics": w.metrics(), "answers": strings.Join(bodies, "\n"), "store": strings.Join(stored, "\n")} {
		for _, raw := range []string{"13800138000", "138 0013 8000", "138+0013+8000", "138%200013"} {
			if strings.Contains(text, raw) {
				t.Errorf("the raw key %q is in the %s", raw, what)
			}
		}
	}
}
