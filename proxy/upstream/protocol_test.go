package upstream

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/await"
)

// talk answers each line with itself, over the version of HTTP it is asked in,
// and tells that version, what it was asked for, and the trailers it got.
func talk(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex()
	w.Header().Set("X-Seen", r.Proto+" "+r.Method+" "+r.RequestURI+" "+r.Host+" te="+r.Header.Get("Te")+" "+r.Header.Get("Upgrade"))
	w.Header().Set("X-Fields", "via="+r.Header.Get("Via")+" id="+r.Header.Get("X-Request-Id")+" set="+strings.Join(append(r.Header["X-Set"], r.Header["X_set"]...), ",")+
		" gone="+r.Header.Get("X-Gone")+" agent="+r.UserAgent()+" for="+strings.Join(r.Header["X-Forwarded-For"], ",")+" kept="+strings.Join(r.Header["X-Kept"], ","))
	w.Header().Set("X-Hidden", "1")
	w.Header().Set("Alt-Svc", "h3=\":443\"")
	w.Header()["Content-Type"] = nil
	w.Header().Set("Trailer", "X-Sum")
	_ = rc.Flush()
	lines := bufio.NewReader(r.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		_, _ = io.WriteString(w, line)
		_ = rc.Flush()
	}
	var sums []string
	for _, name := range slices.Sorted(maps.Keys(r.Trailer)) {
		sums = append(sums, name+"="+r.Trailer.Get(name))
	}
	w.Header().Set("X-Sum", strings.Join(sums, ",")+"!")
	w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	w.Header().Set(http.TrailerPrefix+"Set-Cookie", "a=b")
}

// newH2C is an upstream that speaks HTTP/2 in the clear and nothing else, on l.
func newH2C(t testing.TB, l net.Listener, handle http.HandlerFunc) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: handle, Protocols: protocols, ReadHeaderTimeout: testTimeout}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Close(); <-served })
}

func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestProtocol_HTTP2(t *testing.T) {
	clear := listen(t, "tcp", "127.0.0.1:0")
	newH2C(t, clear, talk)
	path := filepath.Join(t.TempDir(), "s")
	newH2C(t, listen(t, "unix", path), talk)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(talk))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())

	for name, c := range map[string]Config{
		"h2c":             {Upstream: config.Upstream{Protocol: config.ProtocolH2C, Targets: []config.Target{{URL: mustURL(t, "http://"+clear.Addr().String())}}}},
		"h2c on a socket": {Upstream: config.Upstream{Protocol: config.ProtocolH2C, Targets: []config.Target{{URL: mustURL(t, "unix:"+path)}}}},
		"h2":              {Upstream: config.Upstream{Protocol: config.ProtocolH2, TLS: config.UpstreamTLS{Roots: roots}, Targets: []config.Target{{URL: mustURL(t, secure.URL)}}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := startProxy(t, mustPool(t, c), nil)
			conn, r := h.dial(t, "POST /a%2Fb?c HTTP/1.1\r\nHost: x.example\r\nTE: trailers\r\nConnection: te, upgrade\r\nUpgrade: websocket\r\n"+
				"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
			send(t, conn, "4\r\none\n\r\n")
			res, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := res.Header.Get("X-Seen"), "HTTP/2.0 POST /a%2Fb?c x.example te=trailers"; got != want {
				t.Errorf("target sees %q, want %q", got, want)
			}
			lines := bufio.NewReader(res.Body)
			for _, next := range []string{"4\r\ntwo\n\r\n", "0\r\nX-Sum: 42\r\n\r\n", ""} {
				line, _ := lines.ReadString('\n')
				if want := map[string]string{"4\r\ntwo\n\r\n": "one\n", "0\r\nX-Sum: 42\r\n\r\n": "two\n"}[next]; line != want {
					t.Errorf("client reads %q, want %q", line, want)
				}
				send(t, conn, "%s", next)
			}
			if res.Trailer.Get("X-Sum") != "X-Sum=42!" {
				t.Errorf("trailers %v", res.Trailer)
			}
			if got := h.result(t); got.Kind != OK {
				t.Errorf("result %+v", got)
			}
		})
	}
}

func TestProtocol_HTTP2Fails(t *testing.T) {
	aborts := listen(t, "tcp", "127.0.0.1:0")
	newH2C(t, aborts, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mute := listen(t, "tcp", "127.0.0.1:0")
	newH2C(t, mute, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	secure := newTLS(t, func(http.ResponseWriter, *http.Request) {}) // knows no HTTP/2
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for name, c := range map[string]struct {
		config Config
		url    string
		want   ResultKind
	}{
		"aborted":        {Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C}}, "http://" + aborts.Addr().String(), ConnectionReset},
		"too slow":       {Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C, Timeouts: config.Timeouts{Response: 50 * time.Millisecond}}}, "http://" + mute.Addr().String(), Timeout},
		"nobody listens": {Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C}}, closedURL(t), ConnectFailed},
		"not HTTP/2":     {Config{Upstream: config.Upstream{Protocol: config.ProtocolH2, TLS: config.UpstreamTLS{Roots: roots}}}, secure.URL, ConnectFailed},
	} {
		t.Run(name, func(t *testing.T) {
			h := startProxy(t, newOrderedPool(t, c.config, c.url), nil)
			h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if got := h.result(t); got.Kind != c.want {
				t.Errorf("result %+v, want kind %d", got, c.want)
			}
		})
	}
}

func TestTarget_UnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := httptest.NewUnstartedServer(http.HandlerFunc(talk))
	s.Listener.Close()
	s.Listener = listen(t, "unix", path)
	s.Start()
	defer s.Close()
	h := startProxy(t, newOrderedPool(t, Config{}, "unix:"+path), nil)
	res, _ := h.ask(t, "GET /a?b HTTP/1.1\r\nHost: x.example\r\n\r\n")
	if got := res.Header.Get("X-Seen"); got != "HTTP/1.1 GET /a?b x.example te=" {
		t.Errorf("target sees %q", got)
	}
	if got := h.result(t); got.Kind != OK || got.Target != "unix:"+path {
		t.Errorf("result %+v", got)
	}
}

func TestForward_ToMutualTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Name", r.TLS.ServerName)
		w.Header().Set("X-Certificates", strings.Repeat("x", len(r.TLS.PeerCertificates)))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	own := config.UpstreamTLS{Roots: roots, Certificate: &s.TLS.Certificates[0], ServerName: "example.com"}
	h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{TLS: own}}, s.URL), nil)
	res, _ := h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if res.Header.Get("X-Name") != "example.com" || res.Header.Get("X-Certificates") != "x" {
		t.Errorf("%s, target sees %v; want the name and one certificate", res.Status, res.Header)
	}
}

func TestTimeout_TLSHandshake(t *testing.T) {
	release := make(chan bool)
	defer close(release)
	deaf := strings.Replace(rawBackend(t, func(net.Conn, *bufio.Reader) { <-release }), "http:", "https:", 1)
	h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{Timeouts: config.Timeouts{Connect: testTimeout, TLS: 50 * time.Millisecond}}}, deaf), nil)
	h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := h.result(t); got.Kind != ConnectTimeout {
		t.Errorf("result %+v", got)
	}
}

func TestTimeout_BetweenBytes(t *testing.T) {
	release := make(chan bool)
	defer close(release)
	stuck := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		<-release
	}
	clear := listen(t, "tcp", "127.0.0.1:0")
	newH2C(t, clear, stuck)
	for url, protocol := range map[string]config.Protocol{startBackend(t, stuck): config.ProtocolHTTP1, "http://" + clear.Addr().String(): config.ProtocolH2C} {
		h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{Protocol: protocol, Timeouts: config.Timeouts{Idle: 50 * time.Millisecond}}}, url), nil)
		_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("client reads %q as a whole answer", body)
		}
		if got := h.result(t); got.Kind != ResponseTruncated || !strings.Contains(got.Err.Error(), errBodyTimeout.Error()) {
			t.Errorf("result %+v", got)
		}
	}
}

// What lasts longer than idle altogether is not cut as long as bytes come, nor
// is a client that reads slowly the target's fault.
func TestTimeout_OnlyBetweenBytes(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Second // a busy machine is late by less
	tick := make(chan time.Time)
	url := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		for range tick {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
		}
	})
	h := startProxy(t, newOrderedPool(t, Config{Upstream: config.Upstream{Timeouts: config.Timeouts{Idle: idle}}}, url), nil)
	_, r := h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	every := time.NewTicker(idle / 10)
	defer every.Stop()
	for range 12 {
		tick <- <-every.C
	}
	close(tick)
	if res, body := answer(t, r, "GET"); res.StatusCode != 200 || len(body) != 12 {
		t.Errorf("%s %q", res.Status, body)
	}
	if got := h.result(t); got.Kind != OK {
		t.Errorf("result %+v", got)
	}
}

func TestMaxConnections(t *testing.T) {
	const most, clients = 2, 10
	now, goOn := make(chan int, clients), make(chan bool)
	url := startBackend(t, func(http.ResponseWriter, *http.Request) { now <- 1; <-goOn })
	p := newOrderedPool(t, Config{Upstream: config.Upstream{MaxConnections: most, Queue: config.Queue{Length: clients - most, Timeout: testTimeout}}}, url)
	h := startProxy(t, p, nil)
	for range clients {
		h.dial(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	await.Until(t, "the others wait", func() bool {
		p.group.mu.Lock()
		defer p.group.mu.Unlock()
		return len(p.group.waiting) == clients-most
	})
	if n := len(now); n > most {
		t.Errorf("%d requests are at the target, want %d", n, most)
	}
	h.ask(t, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := h.result(t); got.Kind != QueueFull || got.Target != "" {
		t.Errorf("result %+v, want Busy", got)
	}
	close(goOn)
	for range clients {
		if got := h.result(t); got.Kind != OK {
			t.Errorf("result %+v", got)
		}
	}
}
