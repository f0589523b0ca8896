// Package interop lets clients and servers that were written elsewhere talk to
// each other through Weir.
package interop

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/sockettest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// enough is how long a test waits for what must happen.
const enough = 2 * time.Minute

// A testProxy is a Weir that serves: plain, and in TLS with a certificate for
// localhost that ca vouches for.
type testProxy struct {
	plain, secure string // host:port; secure has localhost as its host
	ca            string // a PEM file
}

// startPlain starts a Weir with these lines of YAML and returns its address.
func startPlain(t *testing.T, yaml string) (addr string) { return startProxy(t, yaml).plain }

// startProxy starts a Weir with these lines of YAML, until the test ends.
func startProxy(t *testing.T, yaml string) testProxy {
	t.Helper()
	c := weirtest.Load(t, yaml)
	p, err := proxy.New(context.Background(), proxy.Options{
		Config: c, Log: zerolog.Nop(), Registry: prometheus.NewRegistry(),
		Store: limiter.NewMemory(limiter.MemoryOptions{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	pair := issued(t, t.TempDir())
	certs, err := frontend.LoadCertificates([]config.Pair{pair}, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	s := frontend.NewServer(p, c.Listen, zerolog.Nop())
	var served sync.WaitGroup
	listen := func(serve func(net.Listener) error) string {
		l := sockettest.Listen(t)
		served.Go(func() {
			if err := serve(l); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
		return l.Addr().String()
	}
	d := testProxy{plain: listen(s.Serve), ca: pair.Cert}
	_, port, _ := net.SplitHostPort(listen(func(l net.Listener) error { return s.ServeTLS(l, certs, nil) }))
	d.secure = "localhost:" + port
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Drain(ctx)
		served.Wait()
		p.Close()
	})
	return d
}

// serve starts a server on a free port until the test ends.
func serve(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	l := sockettest.Listen(t)
	s := &http.Server{Handler: h, ReadHeaderTimeout: enough}
	var served sync.WaitGroup
	served.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Close(); served.Wait() })
	return l.Addr().String()
}

// issued writes a certificate for localhost that vouches for itself, and its
// key, into dir.
func issued(t *testing.T, dir string) config.Pair {
	t.Helper()
	cert, key := certtest.New(t, "localhost")
	return config.Pair{Cert: filetest.Write(t, cert, dir, "localhost.pem"), Key: filetest.Write(t, key, dir, "localhost.key")}
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// program is the path of a program of others: what PATH has, or what test/install
// has left. Without one the test fails.
func program(t *testing.T, name string) string {
	t.Helper()
	cached, err := filepath.Abs(filepath.Join("..", ".cache", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, candidate := range []string{name, cached} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not here: run test/install %s, as ./test/interop/run does", name, name)
	return ""
}

// mustRun is what a program that must succeed has written, to both its outputs.
func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := run(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return text
}

// run runs a program to its end.
func run(t *testing.T, name string, args ...string) (text string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*enough)
	defer cancel()
	out, err := exec.CommandContext(ctx, program(t, name), args...).CombinedOutput()
	return string(out), err
}

// startServer starts a server that listens on addr, and waits until it does. It
// ends with the test.
func startServer(t *testing.T, c *exec.Cmd, addr string) {
	t.Helper()
	out := new(logtest.Log)
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The signal comes with the end of the thread that has started the program, and
		// not of the process: this one lasts as long as the program does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		if started <- err; err == nil {
			ended <- c.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM) // a shell may have let it ignore the other
		select {
		case <-ended:
		case <-time.After(enough):
			c.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(c.Path), out)
		}
	})
	await.Until(t, c.Path+" on "+addr, func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s has ended: %v\n%s", c.Path, err, out)
		default:
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
}

// startProgram runs a program until it or the test ends, and returns what it writes.
func startProgram(t *testing.T, name string, args ...string) *logtest.Log {
	t.Helper()
	out := new(logtest.Log)
	c := exec.CommandContext(t.Context(), program(t, name), args...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Wait() })
	return out
}
