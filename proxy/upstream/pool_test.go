package upstream

import (
	"bufio"
	"context"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/pooltest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// TestMain sees to it that nothing is left running, but for a lookup of a name
// that nobody waits for any more: net ends it when its time is up.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // net/http tells there of targets that send too much
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("net.(*Resolver).tryOneName"),
		goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr.func1"),
		goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr.func2"))
}

func TestPool_DetectsLoops(t *testing.T) {
	l := sockettest.Listen(t)
	pool := poolOf(t, "http://"+l.Addr().String())
	server := &http.Server{ReadHeaderTimeout: testTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if res := forwardNet(pool, w, r); res.Kind == LoopDetected {
			w.WriteHeader(http.StatusLoopDetected)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Close(); <-served; pool.Close() }()
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request(t, "http://"+l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusLoopDetected {
		t.Errorf("status %s, want 508", res.Status)
	}
}

func TestPool_CloseKeepsRequestsInProgress(t *testing.T) {
	arrived, goOn, ended := make(chan bool), make(chan bool), make(chan bool, 1)
	url := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		arrived <- true
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")
		<-goOn
		_, _ = io.WriteString(c, "half")
		_, _ = io.ReadAll(r)
		ended <- true
	})
	pool := poolOf(t, url)
	h := startProxy(t, pool, nil)
	_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	await.Value(t, arrived, "request")
	pool.Close()
	close(goOn)
	if _, body := answer(t, r, "GET"); body != "halfhalf" {
		t.Errorf("body %q", body)
	}
	if got := h.result(t); got.Kind != OK {
		t.Errorf("result %+v", got)
	}
	await.Value(t, ended, "end of the connection")
}

func TestForward_FailingTargets(t *testing.T) {
	release := make(chan bool)
	defer close(release)
	mute := rawBackend(t, func(_ net.Conn, r *bufio.Reader) { readHead(r); <-release })
	deaf := rawBackend(t, func(net.Conn, *bufio.Reader) { <-release })
	secure := strings.Replace(startBackend(t, func(http.ResponseWriter, *http.Request) {}), "http:", "https:", 1)

	const body = 64 << 20 // more than sockets hold
	for name, c := range map[string]struct {
		config Config
		url    string
		length int
		want   ResultKind
	}{
		"nobody listens":  {Config{}, "http://" + sockettest.ClosedAddr(t), 0, ConnectFailed},
		"dial too slow":   {Config{Upstream: config.Upstream{Timeouts: config.Timeouts{Connect: 1}}}, mute, 0, ConnectTimeout},
		"not TLS":         {Config{}, secure, 0, ConnectFailed},
		"TLS too slow":    {Config{Upstream: config.Upstream{Timeouts: config.Timeouts{Connect: 50 * time.Millisecond}}}, strings.Replace(deaf, "http:", "https:", 1), 0, ConnectTimeout},
		"no answer":       {Config{Upstream: config.Upstream{Timeouts: config.Timeouts{Response: 50 * time.Millisecond}}}, mute, 0, Timeout},
		"takes no body":   {Config{Upstream: config.Upstream{Timeouts: config.Timeouts{Response: 50 * time.Millisecond}}}, deaf, body, Timeout},
		"closes at once":  {Config{}, rawBackend(t, func(net.Conn, *bufio.Reader) {}), 0, ConnectionReset},
		"closes in reply": {Config{}, rawBackend(t, func(_ net.Conn, r *bufio.Reader) { readHead(r) }), 0, ConnectionReset},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Targets = []config.Target{{URL: mustURL(t, c.url)}}
			h := startProxy(t, mustPool(t, c.config), nil)
			r := request(t, h.URL)
			if c.length > 0 {
				r.Method, r.ContentLength = "POST", int64(c.length)
				r.Body = io.NopCloser(io.LimitReader(zeros{}, int64(c.length)))
			}
			if res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r); err == nil {
				res.Body.Close()
			}
			got := h.result(t)
			if got.Kind != c.want || got.HeaderSent || got.Status != 0 || got.Err == nil {
				t.Errorf("result %+v, want kind %d", got, c.want)
			}
		})
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestForward_ToTLS(t *testing.T) {
	var asked atomic.Int32
	s := newTLS(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	stranger := startProxy(t, poolOf(t, s.URL), nil)
	stranger.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := stranger.result(t); got.Kind != ConnectFailed || asked.Load() != 0 {
		t.Errorf("result %+v, asked %d times; want no connection to one that nobody vouches for", got, asked.Load())
	}

	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	h := startProxy(t, mustPool(t, Config{Upstream: config.Upstream{Targets: []config.Target{{URL: mustURL(t, s.URL)}}, TLS: config.UpstreamTLS{Roots: roots}}}), nil)
	h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := h.result(t); got.Kind != OK || asked.Load() != 1 {
		t.Errorf("result %+v, asked %d times", got, asked.Load())
	}
}

// A second connection to a target resumes the TLS session of the first one.
func TestTLS_SessionsAreResumed(t *testing.T) {
	for name, protocol := range map[string]config.Protocol{"HTTP/1.1": config.ProtocolHTTP1, "HTTP/2": config.ProtocolH2} {
		t.Run(name, func(t *testing.T) {
			var resumed, full atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.TLS.DidResume {
					resumed.Add(1)
				} else {
					full.Add(1)
				}
				if r.ProtoMajor == 1 {
					w.Header().Set("Connection", "close")
				}
			}))
			s.EnableHTTP2 = protocol == config.ProtocolH2
			s.StartTLS()
			t.Cleanup(s.Close)
			trust := s.Client().Transport.(*http.Transport).TLSClientConfig
			if protocol == config.ProtocolH2 {
				p := newOrderedPool(t, Config{Upstream: config.Upstream{Protocol: config.ProtocolH2, TLS: config.UpstreamTLS{Roots: trust.RootCAs}}}, s.URL)
				transport := newHTTP2(p.config, p.backends)
				for range 3 {
					res, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), "GET", s.URL, nil))
					if err != nil {
						t.Fatal(err)
					}
					res.Body.Close()
					transport.CloseIdleConnections()
				}
			} else {
				address := s.Listener.Addr().String()
				client := &http1.Client{}
				pool := client.NewPool(http1.Endpoint{Network: "tcp", Address: address, TLS: tlsConfigFor(config.UpstreamTLS{Roots: trust.RootCAs}, address, "http/1.1")})
				defer pool.Close()
				for range 3 {
					getOnce(t, pool)
				}
			}
			if full.Load() != 1 || resumed.Load() != 2 {
				t.Errorf("%d full handshakes and %d resumed ones; want 1 and 2", full.Load(), resumed.Load())
			}
		})
	}
}

// getOnce sends a request and reads the response, with the session ticket before it.
func getOnce(t *testing.T, pool *http1.Pool) {
	t.Helper()
	call := (&http1.Client{}).NewCall(nil)
	defer call.Release()
	call.Begin("GET", "a", "/")
	if err := pool.Send(call); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := call.Body().Next(); err != nil {
			return
		}
	}
}

type noSink struct{}

func (noSink) AbortWith(http1.Aborter) {}

// What forwards the next request, which may be another client's, keeps memory alone.
func TestForwarding_ResetForgetsTheRequest(t *testing.T) {
	f := new(forwarding)
	pooltest.Fill(t, f, context.Background(), new(http1Sender), new(http1.Duplex), new(http1.Call), header(new(http1.Head)), noSink{})
	f.reset()
	pooltest.Empty(t, f)
}

// TestResolve_KeepsAddressesOfAFailingNameServer: new connections go to the addresses that the name had last if its
// lookup fails or is not answered, but not if the name exists no more.
func TestResolve_KeepsAddressesOfAFailingNameServer(t *testing.T) {
	first := listen(t, "tcp", "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(first.Addr().String())
	first.Close()
	startAt(t, "127.0.0.1:"+port, nil)
	for what, c := range map[string]struct {
		code    dnsmessage.RCode
		connect time.Duration
		want    []int
	}{
		"fails":         {dnsmessage.RCodeServerFailure, time.Minute, []int{200, 200}},
		"is silent":     {noAnswer, 300 * time.Millisecond, []int{502, 200}}, // the first lookup takes all the time to connect
		"knows no name": {dnsmessage.RCodeNameError, time.Minute, []int{502, 502}},
	} {
		t.Run(what, func(t *testing.T) {
			names := newNameserver(t)
			names.address.Store(&[4]byte{127, 0, 0, 1})
			upstream := config.Upstream{Timeouts: config.Timeouts{Connect: c.connect}}
			p := newOrderedPool(t, Config{Upstream: upstream, Resolver: names.resolver()}, "http://api.test.:"+port)
			h := startProxy(t, p, nil)
			p.config.names.addressRemoved(t.Context(), p.hostnames())
			names.code.Store(uint32(c.code))
			names.address.Store(nil)
			get := func() int {
				p.replaceTransport() // so that a connection is made
				r, _ := h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
				h.result(t)
				return r.StatusCode
			}
			if got := []int{get(), get()}; !slices.Equal(got, c.want) {
				t.Errorf("status %d, want %d", got, c.want)
			}
			asked := names.asked.Load()
			if get(); c.want[1] == 200 && names.asked.Load() > asked {
				t.Error("each connection asks the name server")
			}
			names.address.Store(&[4]byte{127, 0, 0, 1})
			if p.config.names.addressRemoved(t.Context(), p.hostnames()) {
				t.Error("the same address is another")
			}
			if got := get(); got != 200 || names.asked.Load() == asked {
				t.Errorf("status %d after the name server is back", got)
			}
		})
	}
}
