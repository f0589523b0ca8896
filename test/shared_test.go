package test

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestShared_TwoProcessesLetThroughExactlyTheRate(t *testing.T) {
	const rate, requests = 50, 2000
	server := redistest.Start(t)
	config := fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 1m}\n", server.Addr) + smsYAML("50/1h", ", on_store_failure: deny")
	nodes := []*weir{start(t, config), start(t, config)}

	got := sendToAll(t, nodes, "phone", requests)
	if got[http.StatusOK] != rate || got[http.StatusTooManyRequests] != requests-rate {
		t.Errorf("answers are %v, want exactly %d of 200 and %d of 429", got, rate, requests-rate)
	}
}

// sendToAll sends n requests for one phone to all nodes, all at once, and counts
// the statuses.
func sendToAll(t *testing.T, nodes []*weir, phone string, n int) map[int]int {
	t.Helper()
	l := &load{answers: map[int]int{}}
	client := &http.Client{Transport: &http.Transport{}, Timeout: testTimeout}
	defer client.CloseIdleConnections()
	gate := make(chan struct{})
	for i := range n {
		l.clients.Go(func() {
			<-gate
			l.send(client, nodes[i%len(nodes)].URL+"/v1/sms/send", http.Header{"X-Phone": {phone}})
		})
	}
	close(gate)
	l.clients.Wait()
	for _, err := range l.errors {
		t.Error(err)
	}
	return l.answers
}

func TestShared_KillingOneChangesNothingForTheOther(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	config := redisYAML(server.Addr) + smsYAML("20/1h, 1000000/24h", ", on_store_failure: deny")
	one, other := start(t, config), start(t, config)
	for i, status := range one.statuses("p", 8) {
		if status != http.StatusOK {
			t.Fatalf("request %d of 20 allowed ones is answered %d", i, status)
		}
	}
	both := []*load{
		startLoad(t, 4, loadRequest{one.URL + "/v1/sms/send", newPhones("one")}),
		startLoad(t, 4, loadRequest{other.URL + "/v1/sms/send", newPhones("other")}),
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
	if err != nil {
		t.Fatal(err)
	}
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
