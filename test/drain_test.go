package test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

func TestDrain_RequestsUnderWayEnd(t *testing.T) {
	release := make(chan struct{})
	api := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		waitForRelease(r, release)
		fmt.Fprint(w, "done")
	})
	w := start(t, "routes:\n  - {match: {path: /slow}, upstream: "+api.URL+"}\n")
	const clients = 5
	answers := make(chan string, clients)
	for range clients {
		go func() {
			status, body := do(t, http.MethodPost, w.URL+"/slow", nil)
			answers <- fmt.Sprint(status, body)
		}()
	}
	await.Until(t, "the requests are under way", func() bool { return api.hits() == clients })

	w.Signal(syscall.SIGTERM)
	await.Until(t, "no connection is taken any more", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
		if err != nil {
			return true
		}
		conn.Close()
		return false
	})
	if w.Ended() {
		t.Fatal("weir ended while requests were under way")
	}
	close(release)
	for range clients {
		select {
		case got := <-answers:
			if got != "200done" {
				t.Errorf("a request under way is answered %q, want 200 done", got)
			}
		case <-time.After(testTimeout):
			t.Fatal("a request under way is not answered")
		}
	}
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d after draining, want 0", code)
	}
}

// WebSockets go on while weir drains, for as long as it may, and are then closed with status 1001, on both
// sides. They are logged, with the time until they were opened.
func TestDrain_WebSocketsAreClosedInOrder(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	api := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for {
			kind, text, err := c.ReadMessage()
			if err != nil {
				ended <- err
				return
			}
			c.WriteMessage(kind, text)
		}
	})
	file := weirtest.Write(t, "listen: {http: '127.0.0.1:0', drain: {within: 3s}}\nadmin: {http: '127.0.0.1:0'}\n"+
		"routes:\n  - {match: {path: /ws}, upstream: '"+api.URL+"', websocket: true}\n")
	w := startWith(t, filepath.Dir(file), "-c", file)
	c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(w.URL, "http")+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(testTimeout))
	echo := func() error {
		c.WriteMessage(websocket.TextMessage, []byte("hello"))
		_, text, err := c.ReadMessage()
		if err == nil && string(text) != "hello" {
			return fmt.Errorf("got %q", text)
		}
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.Signal(syscall.SIGTERM)
	for err == nil {
		err = echo()
	}
	if lasted := time.Since(began); !websocket.IsCloseError(err, websocket.CloseGoingAway) || lasted < 2*time.Second {
		t.Errorf("ended after %v by %v; want 1001 after 3 s", lasted, err)
	}
	if err := await.Value(t, ended, "the end at the upstream"); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("the upstream sees %v; want 1001", err)
	}
	line := w.WaitForLog("request", func(line logtest.Line) bool { return line["status"] == 101.0 })
	if ms, ok := line["upstream_ms"].(float64); !ok || ms < 0 || ms > 1000 {
		t.Errorf("upstream_ms is %v", line["upstream_ms"])
	}
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestDrain_IdleConnectionsDoNotHoldIt(t *testing.T) {
	t.Parallel()
	w := start(t, smsYAML("1/1m", ""))
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nContent-Length: 0\r\n\r\n")
	w.WaitForLog("request", nil)
	w.Signal(syscall.SIGTERM)
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// For the time that load balancers need, weir says that it leaves and still
// takes connections; its answers say that theirs end.
func TestDrain_DelayTellsFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), smsYAML("100/1m", "")+`
listen: {http: "127.0.0.1:0", drain: {delay: 5s}}
admin: {http: "127.0.0.1:0"}
`)
	w := startWith(t, dir, "-c", "weir.yaml")
	w.Signal(syscall.SIGTERM)
	await.Until(t, "/readyz says no", func() bool {
		status, _ := w.get(w.Admin + "/readyz")
		return status == http.StatusServiceUnavailable
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatalf("a new connection is refused while others are told: %v", err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nContent-Length: 0\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Errorf("the answer is %d and the connection ends: %v; want 200 and an end", res.StatusCode, res.Close)
	}
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Whoever uses a connection while weir ends gets an answer that says it is the
// last one, and no reset.
func TestDrain_ConnectionsInUseAreTold(t *testing.T) {
	w := start(t, smsYAML("100000/1m", ""))
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers, told := bufio.NewReader(conn), false
	for n := 0; !told; n++ {
		fmt.Fprint(conn, "POST /v1/sms/send HTTP/1.1\r\nHost: x\r\nX-Phone: 1\r\nContent-Length: 0\r\n\r\n")
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("request %d has no answer: %v", n, err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if told = res.Close; n == 3 {
			w.Signal(syscall.SIGTERM)
		}
	}
}

// Who asks twice does not want to wait.
func TestDrain_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	api := startBackend(t, func(_ http.ResponseWriter, r *http.Request) { waitForRelease(r, release) })
	w := start(t, "routes:\n  - {match: {path: /slow}, upstream: "+api.URL+"}\n")
	go do(t, http.MethodPost, w.URL+"/slow", nil)
	await.Until(t, "the request is under way", func() bool { return api.hits() == 1 })
	w.Signal(syscall.SIGTERM)
	w.WaitForLog("draining", nil)
	w.Signal(syscall.SIGTERM)
	w.Exit()
	if by, ok := w.State().Sys().(syscall.WaitStatus); !ok || by.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v, want the second SIGTERM", w.State())
	}
}

// As long as its last requests end, a node counts among the others and is asked
// about what is pushed; then it is gone at once.
func TestDrain_ANodeStaysUntilItsEnd(t *testing.T) {
	t.Parallel()
	server, release := redistest.Start(t), make(chan struct{})
	api := startBackend(t, func(_ http.ResponseWriter, r *http.Request) { waitForRelease(r, release) })
	config := func(n int) string {
		return redisYAML(server.Addr) + "reload: {source: redis}\n" + revisionYAML(n) + "  - {match: {path: /slow}, upstream: " + api.URL + "}\n"
	}
	leaves, stays := start(t, config(0)), start(t, config(0))
	waitForMembership(t, server.Addr, 2)
	answer := make(chan int, 1)
	go func() {
		status, _ := do(t, http.MethodPost, leaves.URL+"/slow", nil)
		answer <- status
	}()
	await.Until(t, "the request is under way", func() bool { return api.hits() == 1 })

	leaves.Signal(syscall.SIGTERM)
	leaves.WaitForLog("draining", nil)
	waitForMembership(t, server.Addr, 2) // each has given a sign since
	var said struct{ Nodes []struct{ Address string } }
	stays.getAdmin("/api/v1/nodes", &said)
	if len(said.Nodes) != 2 || stays.metric("weir_cluster_nodes") != 2 {
		t.Errorf("the other node tells of %v; want both", said.Nodes)
	}
	if code, stdout, stderr := stays.push(config(1), "anna"); code != 0 {
		t.Errorf("push exits with %d: %s%s", code, stdout, stderr)
	}
	leaves.WaitForLog("serving pushed config", nil)
	if leaves.Ended() {
		t.Error("weir ended while a request was under way")
	}
	close(release)
	if status := <-answer; status != http.StatusOK {
		t.Errorf("the request under way is answered %d", status)
	}
	if code := leaves.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got := heartbeats(t, redisClient(t, server.Addr)); len(got) != 1 {
		t.Errorf("after it has ended Redis knows of %v", got)
	}
}
