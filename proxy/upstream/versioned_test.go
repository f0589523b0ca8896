package upstream

import (
	"io"
	"net/http"
	"testing"
)

// A versioned test runs for clients of HTTP/1.1 and of HTTP/2, each before targets of
// HTTP/1.1 and of HTTP/2.
type versioned struct {
	*testing.T
	downstream, upstream int // major versions
}

func overVersions(t *testing.T, test func(t versioned)) {
	t.Helper()
	for _, c := range []struct {
		name                 string
		downstream, upstream int
	}{{"HTTP1 to HTTP1", 1, 1}, {"HTTP1 to HTTP2", 1, 2}, {"HTTP2 to HTTP1", 2, 1}, {"HTTP2 to HTTP2", 2, 2}} {
		t.Run(c.name, func(t *testing.T) { test(versioned{t, c.downstream, c.upstream}) })
	}
}

// backend starts a target and is the configuration of a pool that has only that.
func (v versioned) backend(handle http.HandlerFunc) Config {
	if v.upstream == 1 {
		return Config{Pseudonym: "weir-test", ConnectTimeout: testTimeout, ResponseTimeout: testTimeout, Targets: []Target{{URL: mustURL(v, startBackend(v, handle))}}}
	}
	l := listen(v, "tcp", "127.0.0.1:0")
	newH2C(v, l, handle)
	return Config{Pseudonym: "weir-test", ConnectTimeout: testTimeout, ResponseTimeout: testTimeout, Protocol: H2C, Targets: []Target{{URL: mustURL(v, "http://"+l.Addr().String())}}}
}

// open starts a proxy before a pool of c, and a client of it.
func (v versioned) open(c Config, change func(*Request)) (*testProxy, *http.Client) {
	pool := mustPool(v, c)
	if v.downstream == 2 {
		p, client := openHTTP2(v.T, pool, change)
		return p, client
	}
	p := startProxy(v, pool, func(r *Request, _ received) {
		if change != nil {
			change(r)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	v.Cleanup(client.CloseIdleConnections)
	return p, client
}

// ask makes a request of client.
func ask(t testing.TB, client *http.Client, r *http.Request) *http.Response {
	t.Helper()
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// post is a request with a body of unknown length.
func post(t testing.TB, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
