package test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// startSteadyLoad asks each of nodes for one phone, about every 40 ms from two clients,
// until the test calls what it returns. It asks slowly enough to leave the
// machine to others, and fast enough to want all that there is to have.
func startSteadyLoad(t *testing.T, nodes []*weir) (stop func()) {
	t.Helper()
	over := make(chan struct{})
	var clients sync.WaitGroup
	for _, w := range nodes {
		for range 2 {
			clients.Go(func() {
				c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: testTimeout}
				defer c.CloseIdleConnections()
				tick := time.NewTicker(40 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-over:
						return
					case <-tick.C:
					}
					r, err := http.NewRequest(http.MethodPost, w.URL+"/v1/sms/send", nil)
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("X-Phone", "p")
					res, err := c.Do(r)
					if err != nil {
						t.Errorf("a request failed: %v", err)
						continue
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		}
	}
	stop = sync.OnceFunc(func() { close(over); clients.Wait() })
	t.Cleanup(stop)
	return stop
}

// A grantLog is what the logs of all nodes say together.
type grantLog struct {
	granted []time.Time // when, in order
	local   int         // of these, without Redis
	slowest time.Duration
}

func readGrants(t *testing.T, nodes []*weir) grantLog {
	t.Helper()
	var a grantLog
	for _, w := range nodes {
		for _, l := range w.log.Lines() {
			if l.Text("message") != "request" {
				continue
			}
			ms, err := strconv.ParseFloat(l.Text("duration_ms"), 64)
			if err != nil {
				t.Fatal(err)
			}
			a.slowest = max(a.slowest, time.Duration(ms*float64(time.Millisecond)))
			if l.Text("status") != "200" {
				continue
			}
			at, err := time.Parse(time.RFC3339, l.Text("time"))
			if err != nil {
				t.Fatal(err)
			}
			a.granted = append(a.granted, at)
			if l.Text("fallback") == "local" {
				a.local++
			}
		}
	}
	slices.SortFunc(a.granted, time.Time.Compare)
	return a
}

// most is how many were granted in the fullest stretch of so long that begins
// between from and to.
func (g grantLog) most(length time.Duration, from, to time.Time) (most int) {
	for i, at := range g.granted {
		if at.Before(from) || at.After(to) {
			continue
		}
		n := 0
		for n < len(g.granted)-i && g.granted[i+n].Sub(at) < length {
			n++
		}
		most = max(most, n)
	}
	return most
}

// between is how many were granted from one time to another.
func (g grantLog) between(from, to time.Time) (n int) {
	for _, at := range g.granted {
		if !at.Before(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// Four nodes that lose Redis for half a minute, under more load than the limit
// lets through, grant what the limit says: what each had before counts against
// its share, and what it granted meanwhile is counted when Redis is back.
func TestFallback_OutageDoesNotOpenAFreshLimit(t *testing.T) {
	const (
		rate   = 40
		window = 10 * time.Second
		long   = 30 * time.Second
	)
	for name, fault := range map[string]struct{ cut, heal func(*redistest.Server) }{
		"stopped": {func(s *redistest.Server) { s.Signal(syscall.SIGSTOP) }, func(s *redistest.Server) { s.Signal(syscall.SIGCONT) }},
		"killed":  {(*redistest.Server).Kill, (*redistest.Server).Restart},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			config := redisDefaultYAML(server.Addr) + smsYAML(fmt.Sprintf("%d/%s", rate, window), ", on_store_failure: local")
			nodes := make([]*weir, 4)
			for i := range nodes {
				nodes[i] = start(t, config)
			}
			waitForMembership(t, server.Addr, len(nodes))
			began := time.Now()
			stop := startSteadyLoad(t, nodes)
			waitSince(t, began, window)
			cut := time.Now()
			fault.cut(server)
			waitSince(t, cut, long)
			fault.heal(server)
			healed := time.Now()
			rdb := redisClient(t, server.Addr)
			await.Until(t, "Redis decides again", func() bool { return len(redisKeys(t, rdb, "*:permits")) > 0 })
			waitSince(t, healed, 2*window)
			stop()

			a := readGrants(t, nodes)
			// The log tells when a request ended; it was granted since it began.
			near := max(150*time.Millisecond, a.slowest)
			if got := a.most(window-near, cut.Add(-window), healed); got > rate*11/10 {
				t.Errorf("%d grants within %v around the outage, want at most %d and a tenth", got, window, rate)
			}
			without := a.between(cut, cut.Add(long)) // it is away for as long as it takes to come back besides
			if windows := int((long + window - 1) / window); without > rate*windows*11/10 {
				t.Errorf("%d grants in the %v without Redis, want at most %d and a tenth", without, long, rate*windows)
			}
			if got := a.most(window-near, healed, healed.Add(window)); got > rate {
				t.Errorf("%d grants within %v after the outage, want at most %d", got, window, rate)
			}
			if want := rate * int(long/window); a.local < want/2 {
				t.Errorf("%d grants by the nodes themselves in %v, want about %d", a.local, long, want)
			}
			if a.slowest > long/2 {
				t.Errorf("the slowest request took %v, want at most %v and what a busy machine adds", a.slowest, decisionTime)
			}
			t.Logf("before %d, without Redis %d in %v, around %d, after %d of %d in %v; %d by the nodes; slowest %v", a.between(began, cut), without, long,
				a.most(window-near, cut.Add(-window), healed), a.most(window-near, healed, healed.Add(window)), rate, window, a.local, a.slowest)
		})
	}
}

// waitSince waits until so long has passed since began.
func waitSince(t *testing.T, began time.Time, long time.Duration) {
	t.Helper()
	await.Within(t, long+testTimeout, "time passes", func() bool { return time.Since(began) > long })
}

// redisKeys are the keys in Redis that match.
func redisKeys(t *testing.T, rdb *redis.Client, pattern string) []string {
	t.Helper()
	names, err := rdb.Keys(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// What a node granted by itself is counted once Redis answers, also of a key
// that nobody asks about any more.
func TestFallback_GrantsAreReported(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisDefaultYAML(server.Addr)+smsYAML("3/1h", ", on_store_failure: local"))
	waitForMembership(t, server.Addr, 1)
	server.Kill()
	if got := w.statuses("p", 2); !slices.Equal(got, []int{200, 200}) {
		t.Fatalf("without Redis: %v", got)
	}
	server.Restart()
	rdb := redisClient(t, server.Addr)
	await.Until(t, "Redis has heard of two", func() bool {
		values := redisKeys(t, rdb, "weir:*:value")
		return len(values) > 0 && rdb.Get(t.Context(), values[0]).Val() == "1"
	})
	await.Until(t, "weir says so", func() bool { return w.metric(`weir_store_reported_permits_total{result="counted"}`) == 2 })
	other := start(t, redisDefaultYAML(server.Addr)+smsYAML("3/1h", ", on_store_failure: deny"))
	await.Until(t, "Redis decides", func() bool { return other.statuses("q", 1)[0] != http.StatusServiceUnavailable })
	if got := other.statuses("p", 2); !slices.Equal(got, []int{200, 429}) {
		t.Errorf("another node answers %v after two of three, want 200 and 429", got)
	}
}
