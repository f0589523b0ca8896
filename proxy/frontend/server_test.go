package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/test/sockettest"
)

func TestServer_BothProtocolsWithoutTLS(t *testing.T) {
	f := startServer(t, "h2c: true", echo())
	f.dial(plainly + plainly).WantStatus(200)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	answer, err := client.Post("http://"+f.addr+"/", "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var got receivedRequest
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || got != (receivedRequest{"HTTP/2.0", "127.0.0.1", "hello", false}) {
		t.Errorf("echoed %+v, %v", got, err)
	}
}

// panicking is a handler with a mistake.
func panicking() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("our own mistake")
		}
	})
}

// A handler that panics ends its connection, and no other.
func TestServer_PanicsAreLogged(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, "", panicking())
		f.dial(strings.Replace(plainly, "/", "/panic", 1)).WantClosed()
		f.waitForLog("panic in a request")
		f.dial(plainly).WantStatus(200)
	})
}

func TestHTTP2_PanicsAreLogged(t *testing.T) {
	f := startServer(t, "h2c: true", panicking())
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	if answer, err := client.Get("http://" + f.addr + "/panic"); err == nil {
		t.Errorf("answered %d", answer.StatusCode)
		answer.Body.Close()
	}
	f.waitForLog("panic in a request")
	f.dial(plainly).WantStatus(200)
}

// A failingListener is a listener that fails for a while, as with too many open files.
type failingListener struct {
	net.Listener
	fails int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.fails > 0 {
		l.fails--
		return nil, fmt.Errorf("too many open files")
	}
	return l.Listener.Accept()
}

func TestServer_AcceptsAgainAfterErrors(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, "", echo())
		f.addr = sockettest.Serve(f, &f.served, func(l net.Listener) error { return f.serve(&failingListener{l, 3}) })
		f.dial(plainly).WantStatus(200)
		f.waitForLog("cannot accept connections")
		if n := strings.Count(f.log.String(), "cannot accept connections"); n != 1 {
			t.Errorf("three errors are logged %d times; want once", n)
		}
	})
}

// A listener that somebody else closes is an error; one that is drained is none.
func TestServer_AListenerThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(echo(), bounds(t, ""), zerolog.Nop())
	l.Close()
	if err := s.Serve(l); err == nil || !strings.Contains(err.Error(), "serve "+l.Addr().String()) {
		t.Errorf("serve: %v; want where", err)
	}
}

func TestServer_NothingIsServedAfterDrain(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, "", echo())
		w := f.dial(plainly)
		w.WantStatus(200)
		if err := f.server.Drain(t.Context()); err != nil {
			t.Errorf("drain: %v", err)
		}
		w.WantClosed()
		if c, err := net.Dial("tcp", f.addr); err == nil {
			c.Close()
			t.Error("a connection after draining")
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.serve(l); err != nil {
			t.Errorf("serve after drain: %v", err)
		}
		if _, err := l.Accept(); err == nil {
			t.Error("a listener that came too late is still open")
		}
	})
}

// Answers say that the connection ends while new ones are still taken.
func TestServer_AnnounceClose(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, "", echo())
		w := f.dial(plainly)
		if answer, _ := w.WantStatus(200); answer.Close {
			t.Fatal("the connection ends already")
		}
		f.server.AnnounceClose()
		w.Send(plainly)
		if answer, _ := w.WantStatus(200); !answer.Close {
			t.Error("an answer does not say that the connection ends")
		}
		w.WantClosed()
		if answer, _ := f.dial(plainly).WantStatus(200); !answer.Close {
			t.Error("a new connection is not told that it ends")
		}
	})
}

// Requests that last longer than the time to drain are cut off, and that is said.
func TestServer_DrainCutsOff(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		arrived := make(chan bool, 1)
		f := over.startServer(t, "", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
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
		w.WantClosed()
	})
}
