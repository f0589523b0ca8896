//go:build readers

// Package readers sends the same requests through a running Weir to real web
// frameworks and compares what each of them read with what Weir counted. It needs
// Node, Python, a JDK and Debian packages, so it is no part of ./test/run:
//
//	./test/interop/readers/run
//
// Each variation is a request that carries a phone number of its own somewhere, in
// some odd way. Weir allows one request an hour for each number. When the request
// comes through, the framework says which route it took and which number it read
// there, and a plain request for that number must then be refused: if it passes, the
// framework acted on a number that Weir had not counted, which is a leak.
//
// Keys that are missing are skipped in the configuration here, and a route for all
// the rest stands beside those with limits: what Weir does not see goes through.
//
// Values that a framework gives with those of the query and of a form brought
// together (PHP's $_REQUEST, a servlet's getParameter, Rack's params, Flask's values,
// Go's Form) count as read from either.
//
// # What is left out
//
//   - A program that brings together more than the punctuation of a number, for
//     example by cutting off what follows the eleventh digit, is its own normalizer;
//     only the key's normalize can say that, and the spellings here are those that
//     \D drops and those that NFKC brings together.
//   - Method overrides (X-Http-Method-Override, _method): a program that turns one
//     method into another wants limits on both.
//   - Routes that a program makes of headers of its own (X-Original-Url,
//     X-Rewrite-Url).
//   - Signed or encrypted cookies, which nobody can vary.
package readers

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// installed is the path of something that ./run has put in place.
func installed(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("WEIR_READERS")
	if folder == "" {
		t.Fatal("WEIR_READERS is not set: run ./test/interop/readers/run, which gets the frameworks first")
	}
	return filepath.Join(folder, name)
}

// A reader is a framework that says what it read.
type reader struct {
	name  string
	start func(t testing.TB) (addr string)
}

// readers are all that are tried.
func readers() []reader {
	return []reader{
		{"express-multer", node("multer")},
		{"express-formidable", node("formidable")},
		{"flask", flask},
		{"gunicorn", gunicorn},
		{"php", php},
		{"php-cgi", cgi},
		{"tomcat", java("tomcat")},
		{"jetty", java("jetty")},
		{"sinatra", sinatra},
		{"net-http", golang("http")},
		{"gin", golang("gin")},
	}
}

func node(forms string) func(t testing.TB) string {
	return func(t testing.TB) string {
		addr, port := free(t)
		launch(t, addr, exec.Command("node", installed(t, "express/server.mjs"), port, forms))
		return addr
	}
}

func flask(t testing.TB) string {
	addr, port := free(t)
	launch(t, addr, exec.Command(installed(t, "python/bin/python"), source(t, "python/server.py"), port))
	return addr
}

// gunicorn passes fields with underscores on, as it did before version 22 and as
// uWSGI does: what gunicorn does today is the milder half of that.
func gunicorn(t testing.TB) string {
	addr, _ := free(t)
	launch(t, addr, exec.Command(installed(t, "python/bin/gunicorn"), "--bind", addr, "--threads", "4",
		"--header-map", "dangerous", "--chdir", source(t, "python"), "server:app"))
	return addr
}

func php(t testing.TB) string {
	addr, _ := free(t)
	launch(t, addr, exec.Command(installed(t, "bin/php"), "-S", addr, source(t, "php/index.php")))
	return addr
}

// cgi is nginx with PHP behind it.
func cgi(t testing.TB) string {
	back, backPort := free(t)
	fast := exec.Command(installed(t, "bin/php-cgi"), "-b", back)
	fast.Env = append(os.Environ(), "PHP_FCGI_CHILDREN=4", "PHP_FCGI_MAX_REQUESTS=0")
	launch(t, back, fast)
	addr, port := free(t)
	room := t.TempDir()
	text, err := os.ReadFile(source(t, "php/nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	conf := strings.NewReplacer("ROOM", room, "PORT", port, "BACK", backPort, "PROGRAM", source(t, "php/index.php")).Replace(string(text))
	file := filepath.Join(room, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	launch(t, addr, exec.Command(os.Getenv("WEIR_READERS_NGINX"), "-p", room, "-c", file))
	return addr
}

func java(container string) func(t testing.TB) string {
	return func(t testing.TB) string {
		addr, port := free(t)
		classes := installed(t, "java/classes") + string(os.PathListSeparator) + installed(t, "java/lib/*")
		launch(t, addr, exec.Command("java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classes,
			"weir.Readers", port, container, t.TempDir()))
		return addr
	}
}

func sinatra(t testing.TB) string {
	addr, port := free(t)
	launch(t, addr, exec.Command(installed(t, "bin/ruby"), source(t, "ruby/server.rb"), port))
	return addr
}

func golang(framework string) func(t testing.TB) string {
	return func(t testing.TB) string {
		addr, port := free(t)
		launch(t, addr, exec.Command(installed(t, "bin/go-reader"), port, framework))
		return addr
	}
}

// source is a file of this folder.
func source(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// free is an address that nobody listens at, below those that the system gives to
// clients: between now and its use nobody else gets it by chance.
func free(t testing.TB) (addr, port string) {
	t.Helper()
	for range 200 {
		port = strconv.Itoa(12_000 + rand.IntN(18_000))
		addr = net.JoinHostPort("127.0.0.1", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr, port
		}
	}
	t.Fatal("no port is free")
	return "", ""
}

// A tail keeps the end of what a process said.
type tail struct {
	mu   sync.Mutex // guards what follows
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - 8<<10; extra > 0 {
		t.text = bytes.Clone(t.text[extra:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// launch starts a process with a group of its own and waits until it listens. It
// ends with the test, and what it started itself ends with it.
func launch(t testing.TB, addr string, cmd *exec.Cmd) {
	t.Helper()
	said := new(tail)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	mark := installed(t, filepath.Join("running", strconv.Itoa(cmd.Process.Pid))) // for ./run
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Error(err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		select {
		case <-done:
			t.Errorf("%s ended by itself: %s", cmd.Path, said)
		default:
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		os.Remove(mark)
	})
	await.Until(t, filepath.Base(cmd.Path)+" listens", func() bool {
		select {
		case <-done:
			t.Fatalf("%s did not start: %s", cmd.Path, said)
		default:
		}
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}
