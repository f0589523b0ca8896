package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A countingBackend is a server behind weir, in this process.
type countingBackend struct {
	*httptest.Server
	seen atomic.Int64
}

// hits is how many requests have reached the server.
func (c *countingBackend) hits() int { return int(c.seen.Load()) }

// startBackend starts a server that does what h says and ends with the test.
func startBackend(t *testing.T, h http.HandlerFunc) *countingBackend {
	t.Helper()
	a := new(countingBackend)
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

// waitForRelease waits until the test lets go, or the client has gone.
func waitForRelease(r *http.Request, release <-chan struct{}) {
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

// redisYAML is the configuration of a store that several proxies share. Its
// timeout is long, for tests in which a busy machine must not look like a Redis
// that is away.
func redisYAML(addr string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 5s}\n", addr)
}

// redisDefaultYAML is shared with the timeout that operators have by default.
func redisDefaultYAML(addr string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q]}\n", addr)
}

// smsYAML is a route with one limit per phone, answered by weir itself.
func smsYAML(rates string, more string) string {
	return fmt.Sprintf(`upstreams: {demo: echo}
routes:
  - name: sms-send
    match: {methods: [POST], path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [%s]%s}
`, rates, more)
}

// redisClient speaks to a Redis server directly.
func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: testTimeout})
	t.Cleanup(func() { c.Close() })
	return c
}
