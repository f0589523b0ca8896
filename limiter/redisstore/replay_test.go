package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/weirtest"
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
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Status"))
		w.WriteHeader(status)
	}))
	defer backend.Close()
	s := newReplayed(t, strings.ReplaceAll(replayedConfig, "BACKEND", backend.URL))
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds.Of(600) {
		s.ask(random)
	}
	s.compare()
}

const replayedConfig = `
store: redis
redis: {timeout: 10s}
keys:
  phone: {from: header:X-Phone}
  number: {from: json:/phone}
routes:
  - name: send
    match: {methods: [POST], path: /send}
    upstream: BACKEND
    refund_on: {status: [5xx]}
    limits:
      - {name: phone, key: phone, rates: [1/10s, 4/5m], penalty: {ban: 30s, after: 2}}
      - {name: ip, key: client_ip, rate: 10/1m, algorithm: sliding_window}
      - {name: all, key: global, rate: 30/1m, mode: shadow, algorithm: gcra, burst: 3}
      - {name: fan, key: client_ip, distinct: phone, rate: 9/1m}
  - name: verify
    match: {methods: [POST], path: /verify}
    upstream: BACKEND
    limits: [{name: wrong, key: phone, rate: 2/30s, count: {status: [4xx]}, algorithm: sliding_log}, {name: log, key: client_ip, rates: [9/20s, 20/1m]}]
  - name: call
    match: {methods: [POST], path: /call}
    upstream: BACKEND
    limits: [{name: backoff, key: phone, cooldown: [5s, 20s, 1m], reset_on: {route: verify, status: [2xx]}}, {name: unused, key: client_ip, rates: [3/10s, 6/1m], algorithm: sliding_log, return_on: {route: verify, key: phone}}]
  - name: body
    match: {methods: [POST], path: /body}
    upstream: BACKEND
    limits: [{name: ip, key: client_ip, rate: 8/1m, algorithm: fixed_window}, {name: number, key: number, rate: 2/1m}]
`

// A replayed is a proxy that counts in Redis, and a replay of what it is asked.
type replayed struct {
	*testing.T
	proxy  *proxy.Proxy
	replay *proxy.Replay
	routes int
	client redis.UniversalClient // of the proxy's Redis, whose clock stands at at
	at     time.Time
	moved  time.Time // when at was set
	log    written
	asked  int64
}

func newReplayed(t *testing.T, config string) *replayed {
	t.Helper()
	c := weirtest.Load(t, config)
	s := &replayed{T: t, routes: len(c.Routes), client: connect(t, redistest.Start(t).Addr), at: time.UnixMilli(1_800_000_000_000), moved: time.Now()}
	var err error
	s.proxy, err = proxy.New(t.Context(), proxy.Options{
		Config: c, Store: redisstore.NewWithTestClock(s.client, redisstore.Options{Timeout: patient}), Registry: prometheus.NewRegistry(), Log: zerolog.New(&s.log),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.proxy.Close)
	s.replay, err = proxy.NewReplay(c, proxy.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.replay.Close() })
	return s
}

// ask asks for something at random, a little later, and replays it. The clock of the test is never slower than that by
// which Redis removes keys, however slow the machine is.
func (s *replayed) ask(random *rand.Rand) {
	step := time.Duration(1+random.IntN(120)) * time.Millisecond
	s.at = s.at.Add(max(step, 2*time.Since(s.moved).Truncate(time.Millisecond)))
	s.moved = time.Now()
	q := proxy.LoggedRequest{
		At: s.at, Method: "POST", Host: "example.com", Target: []string{"/send", "/send", "/verify", "/call", "/body"}[random.IntN(5)],
		Client: netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(4))}), Status: []int{200, 200, 401, 503}[random.IntN(4)],
	}
	phone := fmt.Sprintf("138000000%02d", random.IntN(30))
	body := ""
	q.Fields = []proxy.LoggedField{{Origin: key.Origin{Source: key.Header, Name: "X-Phone"}, Value: phone}, {Origin: key.Origin{Source: key.JSON, Name: "/phone"}}}
	if q.Target == "/body" {
		q.Fields[1].Value = phone
		body = `{"phone":"` + phone + `"}`
	}
	if err := s.client.Set(s.Context(), redisstore.TestClock, s.at.UnixMilli(), 0).Err(); err != nil {
		s.Fatal(err)
	}
	r := httptest.NewRequest(q.Method, "http://"+q.Host+q.Target, strings.NewReader(body))
	r.Header.Set("X-Phone", phone)
	r.Header.Set("X-Status", strconv.Itoa(q.Status))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = netip.AddrPortFrom(q.Client, 1).String()
	weirtest.Exchange(s.proxy, r)
	s.asked++
	for s.log.Load() < s.asked { // what is given back is given back before the line is written
		runtime.Gosched()
	}
	s.replay.Request(&q)
}

// compare compares what was served with what the replay says.
func (s *replayed) compare() {
	s.Helper()
	served, replayed := s.proxy.Counts(), s.replay.Finish()
	if len(replayed.Routes) != s.routes {
		s.Fatalf("%d routes were met; want %d", len(replayed.Routes), s.routes)
	}
	for _, route := range replayed.Routes {
		for _, l := range route.Limits {
			refused, result := l.Refused, "refused"
			if l.Mode == "shadow" {
				refused, result = l.Shadowed, "shadow_refused"
			}
			allowed, denied := served[proxy.Series{Route: route.Name, Limit: l.Name, Result: "allowed"}], served[proxy.Series{Route: route.Name, Limit: l.Name, Result: result}]
			if l.Passed != allowed || refused != denied || allowed == 0 || denied == 0 {
				s.Errorf("%s.%s: %d passed, %d refused; served %d and %d", route.Name, l.Name, l.Passed, refused, allowed, denied)
			}
		}
	}
}
