package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// An api is a server behind weir, in this process.
type api struct {
	*httptest.Server
	seen atomic.Int64
}

// hits is how many requests have reached the server.
func (a *api) hits() int { return int(a.seen.Load()) }

// backend starts a server that does what h says and ends with the test.
func backend(t *testing.T, h http.HandlerFunc) *api {
	t.Helper()
	a := new(api)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.seen.Add(1)
		h(w, r)
	}))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// held waits until the test lets go, or the client has gone.
func held(r *http.Request, release <-chan struct{}) {
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

// shared is the configuration of a store that several proxies share. Its
// timeout is long, for tests in which a busy machine must not look like a Redis
// that is away.
func shared(addr string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 5s}\n", addr)
}

// hasty is shared with the timeout that operators have by default.
func hasty(addr string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q]}\n", addr)
}

// sms is a route with one limit per phone, answered by weir itself.
func sms(rates string, more string) string {
	return fmt.Sprintf(`upstreams: {demo: echo}
routes:
  - name: sms-send
    match: {methods: [POST], path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [%s]%s}
`, rates, more)
}

// client speaks to a Redis server directly.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: testTimeout})
	t.Cleanup(func() { c.Close() })
	return c
}
