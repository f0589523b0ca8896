package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/rs/zerolog"
	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
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
	l := sockettest.Listen(t)
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
		l := sockettest.Listen(t)
		if err := f.serve(l); err != nil {
			t.Errorf("serve after drain: %v", err)
		}
		if _, err := l.Accept(); err == nil {
			t.Error("a listener that came too late is still open")
		}
	})
}

// An observedListener is a listener that tells when it has accepted a connection, and when it was
// closed. The connections of one that holds them are slow to be served: nobody gets
// further with them before that.
type observedListener struct {
	net.Listener
	holds            bool
	accepted, closed chan struct{}
	first, end       sync.Once
}

func newObservedListener(t *testing.T) *observedListener {
	t.Helper()
	l := sockettest.Listen(t)
	return &observedListener{Listener: l, accepted: make(chan struct{}), closed: make(chan struct{})}
}

func (l *observedListener) Close() error {
	defer l.end.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *observedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.first.Do(func() { close(l.accepted) })
	if err == nil && l.holds {
		c = blockedConn{c, l.closed}
	}
	return c, err
}

// A blockedConn connection cannot be looked into before until is closed.
type blockedConn struct {
	net.Conn
	until chan struct{}
}

func (c blockedConn) NetConn() net.Conn {
	<-c.until
	return c.Conn
}

// What was accepted just before the listener was closed is served, however long it
// takes until somebody begins to.
func TestDrain_ServesWhoWasAcceptedLast(t *testing.T) {
	l := newObservedListener(t)
	l.holds = true
	f := &testServer{T: t, server: newTestServer(echo(), bounds(t, ""), zerolog.Nop()), addr: l.Addr().String()}
	f.served.Go(func() { f.server.Serve(l) })
	defer f.served.Wait()
	w := f.dial(plainly)
	<-l.accepted
	if err := f.server.Drain(t.Context()); err != nil {
		t.Errorf("drain: %v", err)
	}
	if answer, _ := w.WantStatus(200); !answer.Close {
		t.Error("the last answer does not say so")
	}
}

// A client that is about to do its handshake has its request answered, in both
// protocols.
func TestDrain_ServesWhoIsInTheHandshake(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		pair := pairIn(t.TempDir(), "a")
		issue(t, pair, "a.example")
		l := newObservedListener(t)
		s := newTestServer(echo(), bounds(t, ""), zerolog.Nop())
		certificates := loaded(t, []config.Pair{pair}, nil)
		var served sync.WaitGroup
		served.Go(func() { s.ServeTLS(l, certificates, nil) })
		raw, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		<-l.accepted
		done := make(chan error, 1)
		go func() { done <- s.Drain(t.Context()) }()
		<-l.closed
		protocols := new(http.Protocols)
		protocols.SetHTTP1(protocol == "HTTP/1.1")
		protocols.SetHTTP2(protocol == "HTTP/2.0")
		transport := &http.Transport{
			Protocols:       protocols,
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return raw, nil },
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"}, //nolint:gosec // issued above
		}
		answer, err := (&http.Client{Transport: transport}).Get("https://a.example/")
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.Proto != protocol || answer.StatusCode != 200 {
			t.Errorf("answered %s %d; want %s", answer.Proto, answer.StatusCode, protocol)
		}
		transport.CloseIdleConnections()
		if err := <-done; err != nil {
			t.Errorf("drain: %v", err)
		}
		served.Wait()
	}
}

// dialHTTP2 begins HTTP/2 with prior knowledge, and returns the settings of the server.
func (t *testServer) dialHTTP2() (*http2.Framer, *http2.SettingsFrame) {
	t.Helper()
	c, err := net.Dial("tcp", t.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(enough))
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	first, err := f.ReadFrame()
	settings, ok := first.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("begins with %v, %v; want settings", first, err)
	}
	return f, settings
}

func TestHTTP2_HasTheBoundOfHeaders(t *testing.T) {
	_, settings := startServer(t, "h2c: true, max_header: 3KiB", echo()).dialHTTP2()
	if got, _ := settings.Value(http2.SettingMaxHeaderListSize); got != 3<<10 {
		t.Errorf("a header may have %d bytes; want 3 KiB", got)
	}
}

// Clients of HTTP/2 learn at once that the server shuts down, and it waits for their requests.
func TestDrain_WaitsForStreams(t *testing.T) {
	begun, release := make(chan bool), make(chan bool)
	f := startServer(t, "h2c: true", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-release }))
	c, _ := f.dialHTTP2()
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(), EndHeaders: true, EndStream: true})
	<-begun
	drained := make(chan error, 1)
	go func() { drained <- f.server.Drain(t.Context()) }()
	for _, want := range []http2.FrameType{http2.FrameGoAway, http2.FrameHeaders} {
		for got := http2.FrameType(0xff); got != want; {
			frame, err := c.ReadFrame()
			if err != nil {
				t.Fatalf("no %v: %v", want, err)
			}
			got = frame.Header().Type
		}
		if want == http2.FrameGoAway {
			close(release)
		}
	}
	if err := await.Value(t, drained, "the end"); err != nil {
		t.Error(err)
	}
}

// A listener whose port another process may take over stays open for handshakes in progress, whoever its clients are.
func TestDrain_WaitsForHandshakesOfASharedPort(t *testing.T) {
	for name, server := range map[string]func(config.Listen) *Server{
		"clients":       func(c config.Listen) *Server { return newTestServer(echo(), c, zerolog.Nop()) },
		"other proxies": func(c config.Listen) *Server { return NewHTTP1Server(func(*http1.Exchange) {}, c, zerolog.Nop()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, l := server(config.Listen{ReusePort: true}), idleListener{make(chan struct{})}
			go s.Serve(l)
			synctest.Wait()
			began := time.Now()
			go s.Drain(t.Context())
			<-l.closed
			if open := time.Since(began); open != handshakeGrace {
				t.Errorf("that of %s is closed after %v; want %v", name, open, handshakeGrace)
			}
		})
	}
}

// An idleListener accepts nothing, until it is closed.
type idleListener struct{ closed chan struct{} }

func (l idleListener) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l idleListener) Close() error              { close(l.closed); return nil }
func (l idleListener) Addr() net.Addr            { return &net.TCPAddr{} }

// proxyHeader is what a load balancer says of a client at 203.0.113.7.
func proxyHeader(t *testing.T, version byte) string {
	t.Helper()
	h := proxyproto.HeaderProxyFromAddrs(version,
		&net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 4711}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80})
	var b bytes.Buffer
	if _, err := h.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// dialBehind connects a client behind a balancer, which says something first: in the clear,
// also before TLS.
func (t *testServer) dialBehind(balancer, said string) *sockettest.Client {
	t.Helper()
	w := sockettest.Dial(t.T, t.addr, balancer)
	if t.client != nil {
		w = sockettest.NewClient(t.T, tls.Client(w.Conn, t.client))
	}
	w.Send(said)
	return w
}

// balanced trusts whoever is on this machine to say who its clients are.
const balanced = "proxy_protocol: [127.0.0.0/8]"

func TestProxyProtocol_ByTrustedBalancers(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced, echo())
		for version := byte(1); version <= 2; version++ {
			w := f.dialBehind(proxyHeader(t, version), plainly+plainly)
			for range 2 {
				if _, body := w.WantStatus(200); !strings.Contains(body, `"203.0.113.7"`) {
					t.Errorf("version %d: %s; want the client that the balancer names", version, body)
				}
			}
		}
		for _, said := range []string{"PROXY UNKNOWN\r\n", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} { // of their own: a health check
			if _, body := f.dialBehind(said, plainly).WantStatus(200); !strings.Contains(body, `"127.0.0.1"`) {
				t.Errorf("%q: %s; want the balancer's own address", said, body)
			}
		}
	})
}

// What a client of HTTP/2 is told last is not destroyed by what it still sends.
func TestProxyProtocol_LastWordsOverHTTP2(t *testing.T) {
	f := startServer(t, "h2c: true, "+balanced, echo())
	junk := strings.Repeat("\x00", 200<<10)
	w := f.dialBehind(proxyHeader(t, 2), http2.ClientPreface+junk)
	if said, err := io.ReadAll(w); err != nil {
		t.Errorf("%d bytes and %v; want them and the end", len(said), err)
	}
}

// A pipe is a connection of a balancer on this machine, each write of which is read for itself.
type pipe struct{ net.Conn }

func (pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A pipeListener accepts one connection.
type pipeListener struct {
	idleListener
	conn chan net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return pipe{c}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// TCP keeps no boundaries: a header may come in any parts.
func TestProxyProtocol_InParts(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced, echo())
		l := pipeListener{idleListener{make(chan struct{})}, make(chan net.Conn)}
		f.served.Go(func() { f.serve(l) })
		for version := byte(1); version <= 2; version++ {
			header := proxyHeader(t, version)
			for cut := 1; cut < len(header); cut++ {
				client, server := net.Pipe()
				t.Cleanup(func() { client.Close() })
				client.SetDeadline(time.Now().Add(enough))
				l.conn <- server
				w := sockettest.NewClient(t, client)
				w.Send(header[:cut])
				w.Send(header[cut:])
				if f.client != nil {
					w = sockettest.NewClient(t, tls.Client(client, f.client))
				}
				w.Send(plainly)
				if _, body := w.WantStatus(200); !strings.Contains(body, `"203.0.113.7"`) {
					t.Errorf("version %d, cut at %d: %s; want the client that the balancer names", version, cut, body)
				}
			}
		}
	})
}

func TestProxyProtocol_TrustedBalancersMust(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced+", timeouts: {header: 300ms}", echo())
		for _, said := range []string{plainly, "PROXY TCP4 nonsense\r\n" + plainly, "PROXY TCP4 1.2.3.4 ", ""} {
			sockettest.Dial(t, f.addr, said).WantClosed() // in the clear, as what balancers say is
		}
	})
}

func TestProxyProtocol_NobodyElseMay(t *testing.T) {
	f := startServer(t, "proxy_protocol: [10.0.0.0/8]", echo())
	for version := byte(1); version <= 2; version++ {
		f.dial(proxyHeader(t, version) + plainly).WantStatus(400)
	}
	if _, body := f.dial(plainly).WantStatus(200); !strings.Contains(body, `"127.0.0.1"`) {
		t.Errorf("got %s; want the peer's own address", body)
	}
}

// A balancer that sends no valid header is closed, counted and logged, once a minute. One that only tries to connect
// is not.
func TestProxyProtocol_BadHeadersAreSeen(t *testing.T) {
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.startServer(t, balanced, echo())
		sockettest.Dial(t, f.addr, "").Conn.Close()
		for _, said := range []string{plainly, "PROXY nonsense\r\n", "\r\n\r\n\x00\r\nQUIT\n\xff\x00\x00\x00"} {
			sockettest.Dial(t, f.addr, said).WantClosed()
		}
		await.Until(t, "three errors", func() bool { return f.server.BadProxyHeaders() == 3 })
		if n := strings.Count(f.log.String(), "no valid PROXY protocol header"); n != 1 {
			t.Errorf("%d lines in the log; want 1", n)
		}
	})
}
