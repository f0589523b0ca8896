package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/sockettest"
)

const (
	// enough is how long a test waits for what must happen. It is a failure to reach
	// it.
	enough = time.Minute
	// plainly is a request of HTTP/1.1.
	plainly = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
)

// A screen is where a log is written.
type screen struct {
	mu sync.Mutex // guards what follows
	b  bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A testServer is a server that listens.
type testServer struct {
	*testing.T
	server *Server
	addr   string
	log    screen
	served sync.WaitGroup
}

// bounds are what a file says of listen.
func bounds(t testing.TB, listen string) config.Listen {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("listen: {"+listen+"}\nroutes: [{match: {path: /}, respond: {body: a}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c.Listen
}

// opened lets h listen as listen says, until the test ends.
func opened(t *testing.T, listen string, h http.Handler) *testServer {
	t.Helper()
	f := &testServer{T: t}
	f.server = NewServer(h, bounds(t, listen), zerolog.New(&f.log))
	f.addr = f.listens(f.server.Serve)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		f.server.Drain(ctx)
		f.served.Wait()
	})
	return f
}

// listens starts serve on a free port, until the test ends.
func (f *testServer) listens(serve func(net.Listener) error) (addr string) {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.served.Go(func() {
		if err := serve(l); err != nil {
			f.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// line waits for a line of the log.
func (f *testServer) line(message string) {
	f.Helper()
	f.eventually("line "+message, func() bool { return strings.Contains(f.log.String(), `"`+message+`"`) })
}

func (f *testServer) eventually(what string, so func() bool) {
	f.Helper()
	deadline := time.NewTimer(enough)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			f.Fatalf("no %s within %v; log:\n%s", what, enough, f.log.String())
		}
	}
}

// dial connects a client that says these bytes.
func (f *testServer) dial(said string) *sockettest.Client {
	f.Helper()
	return sockettest.Dial(f.T, f.addr, said)
}

// An echoed is what a handler was asked.
type echoed struct {
	Proto, Peer, Body string
	TLS               bool
}

// echo answers with what it is asked.
func echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		json.NewEncoder(w).Encode(echoed{r.Proto, host, string(body), r.TLS != nil})
	})
}

func TestServer_BothProtocolsWithoutTLS(t *testing.T) {
	f := opened(t, "h2c: true", echo())
	f.dial(plainly + plainly).Status(200)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	answer, err := client.Post("http://"+f.addr+"/", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got echoed
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || got != (echoed{"HTTP/2.0", "127.0.0.1", "hello", false}) {
		t.Errorf("echoed %+v, %v", got, err)
	}
}

// A handler that panics ends its connection, and no other.
func TestServer_PanicsAreLogged(t *testing.T) {
	for _, listen := range []string{"h2c: false", "h2c: true"} {
		f := opened(t, listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/panic" {
				panic("our own mistake")
			}
		}))
		protocols := new(http.Protocols)
		protocols.SetHTTP1(listen == "h2c: false")
		protocols.SetUnencryptedHTTP2(listen != "h2c: false")
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		defer client.CloseIdleConnections()
		if answer, err := client.Get("http://" + f.addr + "/panic"); err == nil {
			t.Errorf("%s: answered %d", listen, answer.StatusCode)
			answer.Body.Close()
		}
		f.line("panic in a request")
		f.dial(plainly).Status(200)
	}
}

func TestServer_ErrorsOfClientsAreForDebugging(t *testing.T) {
	for line, want := range map[string]string{
		"http2: server: error reading preface from client 127.0.0.1:1: EOF\n": `{"level":"debug","error":"http2: server: error reading preface from client 127.0.0.1:1: EOF","message":"connection error"}`,
		"http2: panic serving 127.0.0.1:1: x\n":                               `{"level":"error","error":"http2: panic serving 127.0.0.1:1: x","message":"panic in a request"}`,
	} {
		var log screen
		if n, err := (serverLog{zerolog.New(&log)}).Write([]byte(line)); err != nil || n != len(line) || strings.TrimSpace(log.String()) != want {
			t.Errorf("%q is logged as %s; want %s", line, log.String(), want)
		}
	}
}

// A brittle is a listener that fails for a while, as with too many open files.
type brittle struct {
	net.Listener
	fails int
}

func (l *brittle) Accept() (net.Conn, error) {
	if l.fails > 0 {
		l.fails--
		return nil, fmt.Errorf("too many open files")
	}
	return l.Listener.Accept()
}

func TestServer_AcceptsAgainAfterErrors(t *testing.T) {
	f := opened(t, "", echo())
	f.addr = f.listens(func(l net.Listener) error { return f.server.Serve(&brittle{l, 3}) })
	f.dial(plainly).Status(200)
}

// A listener that somebody else closes is an error; one that is drained is none.
func TestServer_AListenerThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(echo(), bounds(t, ""), zerolog.Nop())
	l.Close()
	if err := s.Serve(l); err == nil || !strings.Contains(err.Error(), "serve "+l.Addr().String()) {
		t.Errorf("serve: %v; want where", err)
	}
}

func TestServer_NothingIsServedAfterDrain(t *testing.T) {
	f := opened(t, "", echo())
	w := f.dial(plainly)
	w.Status(200)
	if err := f.server.Drain(t.Context()); err != nil {
		t.Errorf("drain: %v", err)
	}
	w.Ended()
	if c, err := net.Dial("tcp", f.addr); err == nil {
		c.Close()
		t.Error("a connection after draining")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.server.Serve(l); err != nil {
		t.Errorf("serve after drain: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("a listener that came too late is still open")
	}
}

// Answers say that the connection ends while new ones are still taken.
func TestServer_AnnounceClose(t *testing.T) {
	f := opened(t, "", echo())
	w := f.dial(plainly)
	if answer, _ := w.Status(200); answer.Close {
		t.Fatal("the connection ends already")
	}
	f.server.AnnounceClose()
	io.WriteString(w.Conn, plainly)
	if answer, _ := w.Status(200); !answer.Close {
		t.Error("an answer does not say that the connection ends")
	}
	w.Ended()
	if answer, _ := f.dial(plainly).Status(200); !answer.Close {
		t.Error("a new connection is not told that it ends")
	}
}

// Requests that last longer than the time to drain are cut off, and that is said.
func TestServer_DrainCutsOff(t *testing.T) {
	arrived := make(chan bool, 1)
	f := opened(t, "", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	}))
	w := f.dial(plainly)
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.server.Drain(ctx); err == nil || !strings.Contains(err.Error(), "requests aborted") {
		t.Errorf("drain: %v", err)
	}
	w.Ended()
}

func TestHandover_AfterItsEnd(t *testing.T) {
	h := newHandover()
	one, other := net.Pipe()
	go h.deliver(one)
	if c, err := h.Accept(); err != nil || c != one {
		t.Errorf("accepted %v, %v; want what was delivered", c, err)
	}
	h.Close()
	h.Close()
	if _, err := h.Accept(); err == nil {
		t.Error("accepted after the end")
	}
	h.deliver(one)
	if _, err := other.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("what is delivered too late: %v; want that it is closed", err)
	}
}
