package test

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestShared_KillingOneChangesNothingForTheOther(t *testing.T) {
	t.Parallel()
	config := redisYAML(redistest.Start(t).Addr) + smsYAML("20/1h, 1000000/24h", ", on_store_failure: deny")
	one, other := start(t, config), start(t, config)
	for i, status := range one.statuses("p", 8) {
		if status != http.StatusOK {
			t.Fatalf("request %d of 20 allowed ones is answered %d", i, status)
		}
	}
	both := []*load{
		startLoad(t, 4, one.URL+"/v1/sms/send", newPhones("one")),
		startLoad(t, 4, other.URL+"/v1/sms/send", newPhones("other")),
	}
	both[0].waitForMore(t, 50)
	both[1].waitForMore(t, 50)
	one.Kill()
	both[1].waitForMore(t, 200)
	for _, l := range both {
		l.stop()
	}
	both[1].wantOnly(t, http.StatusOK)

	got := other.statuses("p", 13)
	for i, status := range got {
		want := http.StatusOK
		if i == 12 {
			want = http.StatusTooManyRequests
		}
		if status != want {
			t.Fatalf("after 8 of 20 by the killed one, the other answers %v, want 12 times 200 and then 429", got)
		}
	}
}

// newPhones gives each request of a load a phone of its own.
func newPhones(prefix string) func(client, n int) http.Header {
	return func(client, n int) http.Header {
		return http.Header{"X-Phone": {fmt.Sprintf("%s-%d-%d", prefix, client, n)}}
	}
}

// Only Redis's clock decides: nothing that weir sends with a decision is a point
// in time by its own clock.
func TestShared_SendsNoTimeOfItsOwn(t *testing.T) {
	server := redistest.Start(t)
	monitor := startMonitor(t, server.Addr)
	w := start(t, redisYAML(server.Addr)+smsYAML("5/1m, 100/1h", ", on_store_failure: deny"))
	w.statuses("p", 3)

	seen := 0
	await.Until(t, "the decisions are seen at Redis", func() bool {
		seen = 0
		for _, args := range monitor.calls() {
			seen++
			for _, arg := range args {
				if looksLikeTime(arg, time.Now()) {
					t.Fatalf("a decision carries the time %s: %q", arg, args)
				}
			}
		}
		return seen >= 3
	})
}

// looksLikeTime reports whether text is a number that could be the present, in any unit.
func looksLikeTime(text string, now time.Time) bool {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
		if math.Abs(n/unit-float64(now.Unix())) < 86400 {
			return true
		}
	}
	return false
}

// A redisMonitor is what Redis is told by its clients.
type redisMonitor struct{ *logtest.Log }

// startMonitor listens to everything that is sent to the server from now on.
func startMonitor(t *testing.T, addr string) redisMonitor {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if answer, err := in.ReadString('\n'); err != nil || answer != "+OK\r\n" {
		t.Fatalf("MONITOR is answered %q %v", answer, err)
	}
	m := redisMonitor{new(logtest.Log)}
	go func() {
		for {
			text, err := in.ReadString('\n')
			if err != nil {
				return // the test is over
			}
			m.Write([]byte(text))
		}
	}()
	return m
}

// calls are the arguments of each script call about the phone's limit.
func (m redisMonitor) calls() [][]string {
	var out [][]string
	for text := range strings.Lines(m.String()) {
		_, command, _ := strings.Cut(text, "] ")
		args := strings.Split(strings.TrimSpace(command), " ")
		for i := range args {
			args[i] = strings.Trim(args[i], `"`)
		}
		if strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") && strings.Contains(command, "sms-send.phone") {
			out = append(out, args)
		}
	}
	return out
}

const (
	// stormRate permits in stormWindow is what one key has on all nodes together.
	stormRate   = 100
	stormWindow = 10 * time.Second
	// pace is how often each client of a storm asks.
	pace = 20 * time.Millisecond
)

// Five nodes hold one limit while nearly everything happens to them that can:
// one is killed, one stopped and continued, one restarted, the configuration is
// edited twice, and Redis fails over. Every process and Redis go by the clock of
// this one machine, so a client's times bound the time of each grant.
func TestStorm_FiveNodesHoldOneLimit(t *testing.T) {
	s := startStorm(t)
	s.at(2, "kill a node", func() { s.weir(0).Kill(); s.nodes[0].Store(nil) })
	s.at(3, "stop a node", func() { s.weir(1).Signal(syscall.SIGSTOP) })
	s.at(4, "restart a node", func() {
		s.weir(2).Signal(syscall.SIGTERM)
		if code := s.weir(2).Exit(); code != 0 {
			t.Errorf("exit code %d of the node that restarts, want 0", code)
		}
		s.nodes[2].Store(startWith(t, s.weir(2).Dir, "-c", s.weir(2).File))
	})
	s.at(6, "edit the configuration", func() { s.edit("one", 2, 3, 4) })
	var away, back time.Duration
	s.at(8, "kill Redis's master", func() {
		away = time.Since(s.began)
		s.redis.Master.Kill()
		s.redis.Promoted(s.redis.Replica.Addr)
		s.decides(2, 3, 4)
		back = time.Since(s.began)
	})
	s.at(11, "continue the stopped node", func() { s.weir(1).Signal(syscall.SIGCONT); s.decides(1) })
	s.at(14, "edit the configuration again", func() { s.edit("two", 1, 2, 3, 4) })
	s.at(26, "end", s.stop) // so that a whole window follows the failover

	calm, across := 0, 0
	for _, w := range s.windows() {
		switch {
		case w.start >= back:
			calm = max(calm, w.granted)
		case w.end > away: // the part before the failover is calm
			calm = max(calm, s.granted(w.start, away))
			across = max(across, w.granted)
		default:
			calm = max(calm, w.granted)
		}
	}
	t.Logf("most in a window of %v: %d, and %d across the failover (from %v to %v); answers %v, %d failed", stormWindow, calm, across,
		away.Round(time.Millisecond), back.Round(time.Millisecond), s.answers, s.failed)
	if calm > stormRate {
		t.Errorf("%d granted in a window without the failover, want at most %d", calm, stormRate)
	}
	// What the replica had not heard of can be had again, and meanwhile each node
	// has its share.
	if across > 2*stormRate {
		t.Errorf("%d granted in a window with the failover, want at most twice %d", across, stormRate)
	}
	if total := len(s.grants); total < stormRate {
		t.Errorf("%d granted in all, want at least %d: the nodes refuse what they should let through", total, stormRate)
	}
}

// A storm is five nodes, a Redis with sentinels, and clients that ask all nodes
// for one key at a steady pace.
type storm struct {
	t      *testing.T
	redis  *redistest.Sentinel
	nodes  [5]atomic.Pointer[weir] // nil: gone for good
	config string
	began  time.Time

	cease func() // ends the clients

	mu      sync.Mutex // guards what follows
	grants  []span
	answers map[int]int
	failed  int
}

// A span is when something happened, since the storm began: not before start,
// and not after end.
type span struct{ start, end time.Duration }

// A window is how much was surely granted between two times.
type window struct {
	span
	granted int
}

func startStorm(t *testing.T) *storm {
	s := &storm{t: t, redis: redistest.StartSentinel(t), answers: map[int]int{}}
	addrs := `"` + strings.Join(s.redis.Addrs, `", "`) + `"`
	s.config = fmt.Sprintf("store: redis\nredis: {mode: sentinel, master: %s, addrs: [%s], timeout: 500ms}\n", s.redis.Name, addrs) +
		smsYAML(fmt.Sprintf("%d/%s", stormRate, stormWindow), "")
	for i := range s.nodes {
		s.nodes[i].Store(start(t, s.config))
	}
	waitForMembership(t, s.redis.Master.Addr, len(s.nodes))
	s.began = time.Now()
	s.cease = keepAsking(t, 2*len(s.nodes), pace, func(i int, c *http.Client) {
		if w := s.weir(i / 2); w != nil { // as long as there is one
			s.send(c, w.URL)
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *storm) weir(i int) *weir { return s.nodes[i].Load() }

// send asks once and notes when, and what came of it.
func (s *storm) send(client *http.Client, url string) {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/sms/send", nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	req.Header.Set("X-Phone", "storm")
	asked := time.Since(s.began)
	res, err := client.Do(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed++ // a node that is killed, stopped or restarted answers nobody
		return
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	s.answers[res.StatusCode]++
	if res.StatusCode == http.StatusOK {
		s.grants = append(s.grants, span{asked, time.Since(s.began)})
	}
}

// at waits until the storm is so many seconds old, and lets something happen.
func (s *storm) at(seconds int, what string, happen func()) {
	s.t.Helper()
	select {
	case <-time.After(time.Until(s.began.Add(time.Duration(seconds) * time.Second))):
	case <-s.t.Context().Done():
	}
	s.t.Logf("%v: %s", time.Since(s.began).Round(time.Millisecond), what)
	happen()
}

// edit gives the nodes a further route, and waits until each serves it.
func (s *storm) edit(name string, nodes ...int) {
	s.t.Helper()
	s.config += fmt.Sprintf("  - {name: %[1]s, match: {path: /%[1]s}, upstream: demo}\n", name)
	for _, i := range nodes {
		s.weir(i).edit(s.config)
	}
	for _, i := range nodes {
		await.Until(s.t, "the edit is served", func() bool {
			status, _ := s.weir(i).get(s.weir(i).URL + "/" + name)
			return status == http.StatusOK
		})
	}
}

// decides waits until these nodes have their decisions from Redis again.
func (s *storm) decides(nodes ...int) {
	s.t.Helper()
	for _, i := range nodes {
		await.Until(s.t, "the node reaches Redis", func() bool {
			_, body := s.weir(i).get(s.weir(i).Admin + "/readyz")
			return !strings.Contains(body, "degraded")
		})
	}
}

func (s *storm) stop() {
	if w := s.weir(1); w != nil {
		w.Signal(syscall.SIGCONT) // or it could not end when the test fails early
	}
	s.cease()
}

// windows are all windows that begin with a grant, and what was surely granted
// within each: a grant that may have happened outside is left out.
func (s *storm) windows() []window {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []window
	for _, first := range s.grants {
		end := first.start + stormWindow
		out = append(out, window{span{first.start, end}, s.grantedLocked(first.start, end)})
	}
	return out
}

// granted is how much was surely granted between two times.
func (s *storm) granted(start, end time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grantedLocked(start, end)
}

func (s *storm) grantedLocked(start, end time.Duration) (n int) {
	for _, g := range s.grants {
		if g.start >= start && g.end <= end {
			n++
		}
	}
	return n
}
