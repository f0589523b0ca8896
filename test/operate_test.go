package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// refuses runs weir with a configuration that it must refuse to serve, and returns
// what it said.
func refuses(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), config)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "weir")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("weir ends with %v, want exit code 1\n%s", err, out)
	}
	return string(out)
}

func TestOperate_SaysWhichPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, listeners := range []string{
		`{listen: {http: "` + l.Addr().String() + `"}, admin: {http: "127.0.0.1:0"}`,
		`{listen: {http: "127.0.0.1:0"}, admin: {http: "` + l.Addr().String() + `"}`,
	} {
		said := refuses(t, listeners+", upstreams: {demo: echo}, routes: [{match: {path: /}, upstream: demo}]}\n")
		if !strings.Contains(said, l.Addr().String()) || !strings.Contains(said, "in use") {
			t.Errorf("weir says %q, want it to name the address that is taken", said)
		}
	}
}

// The file is named as people name files, and goes away and comes back.
func TestOperate_FileGoesAndComesBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "etc", "weir.yaml")
	write(t, file, reloadYAML("1/60s")+weirtest.Listeners)
	w := startWith(t, dir, "run", "-c", "./etc/weir.yaml")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	w.WaitForLog("reload refused", nil)
	if got := w.statuses("p", 2); !slices.Equal(got, []int{200, 429}) {
		t.Errorf("without its file weir answers %v, want 200 and 429 as before", got)
	}
	write(t, file, reloadYAML("2/60s")+weirtest.Listeners)
	await.Until(t, "the file that came back is served", func() bool { return w.generation() == 2 })
}

// A Redis that hangs does not keep weir from ending.
func TestOperate_EndsWhileRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := start(t, redisDefaultYAML(server.Addr)+policies())
	w.ask("deny", "p", 1)
	server.Signal(syscall.SIGSTOP)
	w.ask("deny", "p", 1)
	began := time.Now()
	w.Signal(syscall.SIGTERM)
	if code := w.Exit(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(began); took > 20*time.Second { // requests that do not end are given 25 s
		t.Errorf("weir took %v to end with nothing to do", took)
	}
}

// A password that Redis does not take is said, and no reason not to serve.
func TestOperate_WrongPasswordIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	w := start(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], password: wrong-secret}\n", server.Addr)+policies())
	await.Until(t, "/readyz has Redis's own word for a wrong password", func() bool {
		return strings.Contains(w.checks()["store"], "WRONGPASS")
	})
	if got := w.ask("deny", "p", 1); got[0] != http.StatusServiceUnavailable {
		t.Errorf("deny answers %v, want 503", got)
	}
	if _, body := w.get(w.Admin + "/readyz"); strings.Contains(body+w.log.String(), "wrong-secret") {
		t.Error("the password is told")
	}
	w = start(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], password: right, timeout: 5s}\n", server.Addr)+policies())
	if got := w.ask("deny", "p", 1); got[0] != http.StatusOK {
		t.Errorf("with the right password deny answers %v, want 200", got)
	}
}

// Two Weirs with prefixes of their own share a Redis and nothing else; with a
// secret of its own, keys have other names.
func TestOperate_PrefixAndSecretSetApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	head := func(prefix, secret string) string {
		return fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 5s, prefix: %s}\nprivacy: {hash_secret: %q}\n", server.Addr, prefix, secret)
	}
	secret := "0123456789abcdef0123456789abcdef"
	one := start(t, head("one", "")+smsYAML("1/1h", ""))
	two := start(t, head("two", "")+smsYAML("1/1h", ""))
	three := start(t, head("two", secret)+smsYAML("1/1h", ""))
	for i, w := range []*weir{one, two, three} {
		if got := w.statuses("p", 2); !slices.Equal(got, []int{200, 429}) {
			t.Errorf("weir %d answers %v, want 200 and 429 whatever the others count", i, got)
		}
	}
}

// A route that allows it upgrades to websocket, and bytes flow both ways.
func TestForward_WebSocketWhereItIsAllowed(t *testing.T) {
	api := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for {
			text, err := in.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(conn, "echo "+text)
		}
	})
	w := start(t, fmt.Sprintf(`routes:
  - {match: {path: /ws}, upstream: %s, websocket: true, limits: [{key: "header:X-Phone", rate: 1/1h}]}
`, api.URL))
	ask := "GET /ws HTTP/1.1\r\nHost: x\r\nX-Phone: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testTimeout))
	io.WriteString(conn, ask)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade is answered %v %v, want 101", res, err)
	}
	for _, word := range []string{"one", "two"} {
		io.WriteString(conn, word+"\n")
		if text, err := in.ReadString('\n'); err != nil || text != "echo "+word+"\n" {
			t.Fatalf("%s is answered %q %v", word, text, err)
		}
	}
	if status, _ := sendRaw(t, w, ask); status != http.StatusTooManyRequests {
		t.Errorf("the second upgrade is answered %d, want 429", status)
	}
}
