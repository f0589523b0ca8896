package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy"
	proxyconfig "github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/test/redistest"
)

// A written is how many lines a log has.
type written struct{ atomic.Int64 }

func (w *written) Write(line []byte) (int, error) {
	w.Add(1)
	return len(line), nil
}

// What a replay says of logged requests is what a proxy says of them that counts in
// Redis, asked over HTTP at the times of the log.
func TestStore_CountsWhatAReplayCounts(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Status"))
		w.WriteHeader(status)
	}))
	defer backend.Close()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(`
store: redis
redis: {timeout: 10s}
keys:
  phone: {from: header:X-Phone}
  number: {from: json:/phone}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: `+backend.URL+`
    refund_on: {status: [5xx]}
    limits:
      - {name: phone, key: phone, rates: [1/10s, 4/5m], penalty: {ban: 30s, after: 2}}
      - {name: ip, key: client_ip, rate: 10/1m, algorithm: sliding_window}
      - {name: all, key: global, rate: 30/1m, mode: shadow, algorithm: gcra, burst: 3}
      - {name: fan, key: client_ip, distinct: phone, rate: 9/1m}
  - name: verify
    match: {methods: [POST], path: /verify}
    upstream: `+backend.URL+`
    limits: [{name: wrong, key: phone, rate: 2/30s, count: {status: [4xx]}, algorithm: sliding_log}, {name: log, key: client_ip, rates: [9/20s, 20/1m]}]
  - name: call
    match: {methods: [POST], path: /call}
    upstream: `+backend.URL+`
    limits: [{name: backoff, key: phone, cooldown: [5s, 20s, 1m], reset_on: {route: verify, status: [2xx]}}]
  - name: body
    match: {methods: [POST], path: /body}
    upstream: `+backend.URL+`
    limits: [{name: ip, key: client_ip, rate: 8/1m, algorithm: fixed_window}, {name: number, key: number, rate: 2/1m}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := proxyconfig.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	client := connect(t, redistest.Start(t).Addr)
	at := time.UnixMilli(1_800_000_000_000)
	var log written
	p, err := proxy.New(t.Context(), proxy.Options{
		Path: path, Config: c, Store: redisstore.NewWithTestClock(client, redisstore.Options{Timeout: patient}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&log),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	replay, err := proxy.NewReplay(c, proxy.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer replay.Close()

	random := rand.New(rand.NewPCG(1, 2))
	for n := range 3000 {
		at = at.Add(time.Duration(1+random.IntN(120)) * time.Millisecond)
		q := proxy.LoggedRequest{
			At: at, Method: "POST", Host: "example.com", Target: []string{"/send", "/send", "/verify", "/call", "/body"}[random.IntN(5)],
			Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(4))}), Status: []int{200, 200, 401, 503}[random.IntN(4)],
		}
		phone := fmt.Sprintf("138000000%02d", random.IntN(30))
		body := ""
		q.Fields = []proxy.LoggedField{{Origin: key.Origin{Source: key.Header, Name: "X-Phone"}, Value: phone}, {Origin: key.Origin{Source: key.JSON, Name: "/phone"}}}
		if q.Target == "/body" {
			q.Fields[1].Value = phone
			body = `{"phone":"` + phone + `"}`
		}
		client.Set(t.Context(), redisstore.TestClock, at.UnixMilli(), 0)
		r := httptest.NewRequest(q.Method, "http://"+q.Host+q.Target, strings.NewReader(body))
		r.Header.Set("X-Phone", phone)
		r.Header.Set("X-Status", strconv.Itoa(q.Status))
		r.Header.Set("Content-Type", "application/json")
		r.RemoteAddr = netip.AddrPortFrom(q.Client, 1).String()
		p.ServeHTTP(httptest.NewRecorder(), r)
		for log.Load() <= int64(n) { // what is given back is given back before the line is written
			runtime.Gosched()
		}
		replay.Request(&q)
	}
	served, replayed := p.Counts(), replay.Finish()
	if len(replayed.Routes) != len(c.Routes) {
		t.Fatalf("%d routes were met; want %d", len(replayed.Routes), len(c.Routes))
	}
	for _, route := range replayed.Routes {
		for _, l := range route.Limits {
			refused, result := l.Refused, "refused"
			if l.Mode == "shadow" {
				refused, result = l.Shadowed, "shadow_refused"
			}
			allowed, denied := served[proxy.Series{Route: route.Name, Limit: l.Name, Result: "allowed"}], served[proxy.Series{Route: route.Name, Limit: l.Name, Result: result}]
			if l.Passed != allowed || refused != denied || allowed == 0 || denied == 0 {
				t.Errorf("%s.%s: %d passed, %d refused; served %d and %d", route.Name, l.Name, l.Passed, refused, allowed, denied)
			}
		}
	}
}
