package test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
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
		if got := await.Value(t, answers, "answer to a request under way"); got != "200done" {
			t.Errorf("a request under way is answered %q, want 200 done", got)
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
	stays.pushes(0, "", config(1), "anna")
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

// handed is a configuration that several weirs can listen with on one port.
func handed(t *testing.T, addr string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "weir.yaml")
	write(t, file, fmt.Sprintf(`listen: {http: %q, reuse_port: true}
admin: {http: "127.0.0.1:0"}
upstreams: {demo: echo}
routes: [{name: a, match: {path: /a}, upstream: demo}]
`, addr))
	return file
}

// Three weirs on one port are replaced one after the other, under load on
// connections that are kept and on others that are not: no request fails.
func TestHandover_RollingRestartLosesNothing(t *testing.T) {
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(redistest.FreePort(t)))
	file := handed(t, addr)
	begin := func() *weir { return startWith(t, filepath.Dir(file), "-c", file) }
	weirs := []*weir{begin(), begin(), begin()}

	cease := pressed(t, "http://"+addr+"/a")
	for i, old := range weirs {
		had := old.answered()
		await.Until(t, "it has its part of the load", func() bool { return old.answered() > had })
		next := begin()
		old.Signal(syscall.SIGTERM)
		if code := old.Exit(); code != 0 {
			t.Errorf("weir %d ended with %d", i, code)
		}
		await.Until(t, "the new one has its part of the load", func() bool { return next.answered() > 0 })
	}
	cease()
}

// pressed has clients ask for url all the time, half of them on connections that
// they keep, until the test calls what it returns. The test fails if a request
// does.
func pressed(t *testing.T, url string) (cease func()) {
	t.Helper()
	kept := startLoad(t, 8, url, func(int, int) http.Header { return http.Header{} })
	closed := startLoad(t, 2, url, func(int, int) http.Header { return http.Header{"Connection": {"close"}} })
	return func() {
		kept.stop()
		closed.stop()
		kept.wantOnly(t, http.StatusOK)
		closed.wantOnly(t, http.StatusOK)
	}
}

// answered is how many requests w has answered.
func (w *weir) answered() float64 { return w.metric(`weir_requests_total{code="200",route="a"}`) }

// A connection that waits to be accepted when the listener is closed is served.
func TestHandover_DrainTakesWhoWaits(t *testing.T) {
	t.Parallel()
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(redistest.FreePort(t)))
	file := handed(t, addr)
	w := startWith(t, filepath.Dir(file), "-c", file)
	w.Signal(syscall.SIGSTOP) // so that nobody is accepted
	const clients = 20
	var waiting []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		waiting = append(waiting, conn)
	}
	w.Signal(syscall.SIGTERM)
	w.Signal(syscall.SIGCONT)
	for i, conn := range waiting {
		conn.SetReadDeadline(time.Now().Add(testTimeout))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("client %d of %d who waited is not served: %v", i, clients, err)
		}
		res.Body.Close()
	}
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// passed starts weir as systemd does that has opened a socket for it by a name.
func passed(t *testing.T, name string, config string) (w *weir, socket net.Listener) {
	t.Helper()
	socket = sockettest.Listen(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, file, config)
	return activated(t, socket, name, file), socket
}

// activated starts weir with socket, the pid of which it must be told.
func activated(t *testing.T, socket net.Listener, name, file string) *weir {
	t.Helper()
	fd, err := socket.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec weir run -c "$0"`, file)
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES="+name)
	cmd.ExtraFiles = []*os.File{fd}
	return launch(t, filepath.Dir(file), cmd)
}

// A socket of systemd's is listened on instead of the address, and requests wait
// there while weir is restarted.
func TestHandover_SystemdKeepsTheSocket(t *testing.T) {
	w, socket := passed(t, "http", smsYAML("100/1m", "")+"listen: {http: \":1\"}\nadmin: {http: \"127.0.0.1:0\"}\n")
	if want := "http://" + socket.Addr().String(); w.URL != want {
		t.Fatalf("weir listens on %s, want %s as passed", w.URL, want)
	}
	w.statuses("p", 1)
	w.Signal(syscall.SIGTERM)
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	answer := make(chan int, 1)
	go func() { answer <- w.send("q") }()
	next := activated(t, socket, "http", w.File)
	if got := <-answer; got != http.StatusOK {
		t.Errorf("a request while no weir ran is answered %d, want 200 from the next", got)
	}
	next.statuses("p", 1)
}
