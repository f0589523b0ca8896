// Package redistest starts real Redis servers for tests: on free ports of
// 127.0.0.1, in a temporary folder, ended with the test that started them.
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// A Server is one running redis-server process.
type Server struct {
	Addr string // host:port on 127.0.0.1
	Port int

	tb       testing.TB
	dir      string
	sentinel string // the file of a sentinel; empty for a server
	args     []string
	cmd      *exec.Cmd
	out      *bytes.Buffer
	done     chan struct{}
}

// Binary returns the path of redis-server: $WEIR_REDIS_SERVER, or what PATH
// has. It ends the test with what to do when there is none.
func Binary(tb testing.TB) string {
	tb.Helper()
	name := os.Getenv("WEIR_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("%s not found: install it from the system's packages (./test/run does that), or name it in WEIR_REDIS_SERVER", name)
	}
	return path
}

// Start runs redis-server without persistence, with args after its own, and
// waits until it answers. The server ends with the test.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return (&Server{tb: tb, dir: folder(tb), args: args}).start()
}

// folder is a folder for a server, of which the test leaves nothing.
func folder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "weir-redis-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start runs the server on a free port. The port may be taken between finding and binding it: then it tries again.
func (s *Server) start() *Server {
	s.tb.Helper()
	s.tb.Cleanup(s.Kill)
	for attempt := 0; ; attempt++ {
		s.Port = FreePort(s.tb)
		s.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))
		os.Remove(filepath.Join(s.dir, "nodes.conf")) // of a node of a cluster, with the port
		err := s.run()
		if err == nil {
			return s
		}
		if attempt == 9 {
			s.tb.Fatalf("start redis-server %s %v: %v", s.sentinel, s.args, err)
		}
	}
}

// Restart starts a server that was killed again, empty, on the same port.
func (s *Server) Restart() {
	s.tb.Helper()
	if err := s.run(); err != nil {
		s.tb.Fatalf("restart redis-server: %v", err)
	}
}

// Signal sends sig to the process: SIGSTOP and SIGCONT make it slow and well. After SIGSTOP it stands still.
func (s *Server) Signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("signal redis-server: %v", err)
	}
	if sig == syscall.SIGSTOP {
		await.Stopped(s.tb, s.cmd.Process.Pid)
	}
}

// Kill ends the process at once, as kill -9 does, and waits for its end. It
// does nothing to a server that has ended.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.done
}

func (s *Server) run() error {
	args := append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port), "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.args...)
	if s.sentinel != "" {
		args = []string{s.sentinel, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port)}
	}
	s.out = new(bytes.Buffer)
	s.cmd = exec.Command(Binary(s.tb), args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.done = done
	go func(cmd *exec.Cmd) {
		cmd.Wait()
		close(done)
	}(s.cmd)
	return s.answers()
}

// answers waits until the server says PONG, or has ended, or a minute is over.
func (s *Server) answers() error {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		select {
		case <-s.done:
			return fmt.Errorf("%s ended: %s", filepath.Base(s.cmd.Path), strings.TrimSpace(s.out.String()))
		case <-time.After(5 * time.Millisecond):
		}
		if ping(s.Addr) == nil {
			return nil
		}
	}
	s.Kill()
	return errors.New("no answer within a minute")
}

// ping asks for a PONG; a server that wants a password is up as well.
func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	var b [8]byte
	n, err := conn.Read(b[:])
	if err != nil || n == 0 || (b[0] != '+' && !bytes.HasPrefix(b[:n], []byte("-NOAUTH"))) {
		return errors.Join(fmt.Errorf("not up: %q", b[:n]), err)
	}
	return nil
}

// FreePort returns a port of 127.0.0.1 that nobody listens on, for TCP and for UDP,
// and that is not returned to another test, also of another process, until this one
// has ended: what listens there may end and come back. The port is below those that
// the system gives to who asks for none, and the one 10,000 higher is as well.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := 11_000 + rand.IntN(10_000)
		// The one 20,000 higher is of no use but that one process has it.
		held, err := net.ListenPacket("udp", local(port+20_000))
		if err != nil {
			continue
		}
		if !free(local(port)) {
			held.Close()
			continue
		}
		tb.Cleanup(func() { held.Close() })
		return port
	}
	tb.Fatal("no port of 127.0.0.1 from 11000 to 20999 is free")
	return 0
}

// FreeAddr is 127.0.0.1 with a port as FreePort returns.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	return local(FreePort(tb))
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// free reports whether nobody listens on addr.
func free(addr string) bool {
	p, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	p.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	l.Close()
	return true
}
