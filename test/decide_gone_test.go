package test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// asksFor is a question of HAProxy about a request for a phone.
func asksFor(phone string) string {
	return strings.ReplaceAll("GET /decide HTTP/1.1|Host: weir|X-Original-Method: POST|X-Original-Uri: /sms|X-Original-Host: a|"+
		"X-Forwarded-For: 192.0.2.1|X-Phone: "+phone+"||", "|", "\r\n")
}

// What a Weir that stood still finds is not counted if those who asked have given up: questions on new
// connections, on connections that were open, and calls of Envoy.
func TestDecide_NobodyWaitsForAWeirThatStoodStill(t *testing.T) {
	t.Parallel()
	const n = 30
	file := weirtest.Write(t, decideYAML)
	w := startWith(t, filepath.Dir(file), "-c", file)
	addr := w.WaitForLog("serving", nil).Text("decide")
	var open []*sockettest.Client
	for i := range n {
		c := sockettest.Dial(t, addr, asksFor(fmt.Sprint("open ", i)))
		c.WantStatus(http.StatusOK)
		open = append(open, c)
	}
	envoy := w.envoyClient()
	if _, err := envoy.asks(t.Context(), "open", 1); err != nil {
		t.Fatal(err)
	}

	w.Signal(syscall.SIGSTOP)
	for _, c := range open {
		c.Send(asksFor("gone"))
		c.Conn.Close()
		sockettest.Dial(t, addr, asksFor("gone")).Conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	calls := make(chan error, n)
	for range n {
		go func() { _, err := envoy.asks(ctx, "gone", 1); calls <- err }()
	}
	for range n {
		if err := await.Value(t, calls, "the end of a call"); err == nil {
			t.Fatal("a Weir that stands still has answered")
		}
	}
	w.Signal(syscall.SIGCONT)

	seen := func(result string) float64 {
		return w.metric(fmt.Sprintf("weir_decide_requests_total{dialect=\"haproxy\",result=%q}", result))
	}
	await.Until(t, "all questions are seen", func() bool { return seen("allowed")+seen("refused")+seen("gone") == 3*n })
	if gone := seen("gone"); gone != 2*n {
		t.Errorf("nobody waits for %v questions; want %d", gone, 2*n)
	}
	for i, want := range []uint64{1, 1, 2} {
		status := []int{200, 200, 429}[i]
		if got, _ := sockettest.Dial(t, addr, asksFor("gone")).ReadResponse(http.MethodGet); got.StatusCode != status {
			t.Errorf("%d over HTTP: %d; want %d", i, got.StatusCode, status)
		}
		if code := w.asksAsEnvoy("gone"); code != want {
			t.Errorf("%d over gRPC: code %d; want %d", i, code, want)
		}
	}
}

// Nothing is counted of a question whose asker leaves while Redis is asked.
func TestDecide_NobodyWaitsForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	file := weirtest.Write(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 1m}\n", server.Addr)+decideYAML)
	w := startWith(t, filepath.Dir(file), "-c", file)
	addr := w.WaitForLog("serving", nil).Text("decide")
	server.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { server.Signal(syscall.SIGCONT) })
	for range 2 {
		sockettest.Dial(t, addr, asksFor("gone")).Conn.Close()
	}
	server.Signal(syscall.SIGCONT)
	for i, want := range []int{200, 200, 429} {
		await.Until(t, "both questions are seen", func() bool { return w.metric(`weir_decide_requests_total{dialect="haproxy",result="gone"}`) == 2 })
		if got, _ := sockettest.Dial(t, addr, asksFor("gone")).ReadResponse(http.MethodGet); got.StatusCode != want {
			t.Errorf("%d: %d; want %d", i, got.StatusCode, want)
		}
	}
}
