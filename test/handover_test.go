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

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

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
	kept := startLoad(t, 8, loadRequest{url, func(int, int) http.Header { return http.Header{} }})
	closed := startLoad(t, 2, loadRequest{url, func(int, int) http.Header { return http.Header{"Connection": {"close"}} }})
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

// Without reuse_port a second weir is a mistake, and says so.
func TestHandover_SecondWeirIsAFaultUnlessMeant(t *testing.T) {
	w := start(t, smsYAML("1/1m", ""))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), strings.Replace(smsYAML("1/1m", "")+weirtest.Listeners, `listen: {http: "127.0.0.1:0"}`,
		fmt.Sprintf("listen: {http: %q}", strings.TrimPrefix(w.URL, "http://")), 1))
	if code, _, said := command(t, dir, "run", "-c", "weir.yaml"); code != 1 || !strings.Contains(said, "another weir") {
		t.Errorf("exit code %d, %q; want 1 and a hint at the other weir", code, said)
	}
}

// passed starts weir as systemd does that has opened a socket for it by a name.
func passed(t *testing.T, name string, config string) (w *weir, socket net.Listener) {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
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

func TestHandover_SocketThatFitsNowhere(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	fd, err := socket.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	for _, name := range []string{"weir.socket", "https"} {
		file := filepath.Join(t.TempDir(), "weir.yaml")
		write(t, file, smsYAML("1/1m", "")+weirtest.Listeners)
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec weir run -c "$0"`, file)
		cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES="+name)
		cmd.ExtraFiles = []*os.File{fd}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), name) || !strings.Contains(string(out), "FileDescriptorName=http") {
			t.Errorf("a socket named %s: %v %s; want what to write instead", name, err, out)
		}
	}
}
