package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
)

// openHTTP2 is open for clients that speak HTTP/2, and one of them.
func openHTTP2(t *testing.T, pool *Pool, change func(*Request)) (*testProxy, *http.Client) {
	t.Helper()
	p := &testProxy{results: make(chan Result, 10)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := netRequestOf(r)
		if change != nil {
			change(asked)
		}
		res := pool.Forward(r.Context(), asked, NewHTTP2Sink(r.Context(), w))
		p.results <- res
		if res.Kind != OK && res.HeaderSent {
			panic(http.ErrAbortHandler)
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	p.URL = s.URL
	t.Cleanup(func() { s.Client().CloseIdleConnections(); s.Close(); pool.Close() })
	return p, s.Client()
}

// A stopCounter is a body of a client that counts how often it is stopped.
type stopCounter struct {
	*strings.Reader
	stops int
}

func (s *stopCounter) Stop()                  { s.stops++ }
func (s *stopCounter) Trailer() *http1.Fields { return new(http1.Fields) }

// net/http closes the body of a request on a goroutine of its own, which may come after
// the request has ended. The client's body then belongs to another request.
func TestRequestBody_IsNotUsedAfterClose(t *testing.T) {
	client := &stopCounter{Reader: strings.NewReader("body")}
	b := newRequestBody(&forwarding{request: &Request{Fields: new(http1.Fields), Body: client}})
	b.close()
	before := client.stops
	b.Stop()
	if n, err := b.Read(make([]byte, 8)); n != 0 || err != http.ErrBodyReadAfterClose {
		t.Errorf("read %d bytes after close, %v", n, err)
	}
	if before != 1 || client.stops != before || client.Len() != 4 {
		t.Errorf("stopped %d times before close returned and %d times in all, %d bytes left; want 1, 1 and 4", before, client.stops, client.Len())
	}
}

// An interim response may arrive after its request has ended, before net/http has reset the stream. The forwarding, and with it
// the Sink, then belongs to another request, or to none.
func TestInterim_EndsWithItsRequest(t *testing.T) {
	pool := New(Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C}, Groups: NewGroups(1)})
	hints := &hintCounter{}
	f := pool.begin(t.Context(), &Request{Method: "GET", Fields: new(http1.Fields)}, hints)
	s := f.sender.(*http2Sender)
	arrives := func() { _ = s.relayInterim(http.StatusEarlyHints, textproto.MIMEHeader{"Link": {"</a>"}}) }
	s.mu.Unlock()
	arrives()
	<-s.relayed
	s.mu.Lock()
	arrives()
	f.end()
	arrives()
	f.to = hints // of the next request
	arrives()
	if hints.n != 1 {
		t.Errorf("%d interim responses were forwarded; want that which arrived before the end", hints.n)
	}
}

// A client that does not read must not delay other requests, which may share the connection to the target.
func TestInterim_DelaysNoOtherRequest(t *testing.T) {
	c := versioned{t, 1, 2}.backend(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
		}
	})
	pool := mustPool(t, c)
	defer pool.Close()
	deaf := &deafSink{began: make(chan int, 2), reads: make(chan bool)}
	ask := func(ctx context.Context, path string, to Sink) Result {
		return pool.Forward(ctx, &Request{Method: "GET", Path: path, Host: "a", Fields: new(http1.Fields), Proto: "HTTP/2.0"}, to)
	}
	ended := make(chan Result, 1)
	go func() { ended <- ask(context.Background(), "/hints", deaf) }()
	got := []int{await.Value(t, deaf.began, "an interim response")}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if res := ask(ctx, "/", new(deafSink)); res.Kind != OK {
		t.Errorf("another request while a client does not read: %+v", res)
	}
	if deaf.status.Load() != 0 {
		t.Error("the final response came before the interim responses")
	}
	close(deaf.reads)
	res := await.Value(t, ended, "the end of the request")
	if got = append(got, <-deaf.began); res.Kind != OK || deaf.status.Load() != http.StatusOK || !slices.Equal(got, []int{103, 102}) {
		t.Errorf("%+v after %v, want OK after 103 and 102", res, got)
	}
}

// A deafSink is a client that reads interim responses only when it may.
type deafSink struct {
	Sink
	began  chan int
	reads  chan bool
	status atomic.Int32
}

func (d *deafSink) Informational(status int, _ *http1.Fields) {
	d.began <- status
	<-d.reads
}

func (d *deafSink) Begin(status int, _ *http1.Fields, _ int64) error {
	d.status.Store(int32(status))
	return nil
}

func (*deafSink) Write(p []byte) (int, error) { return len(p), nil }
func (*deafSink) Flush() error                { return nil }
func (*deafSink) End(*http1.Fields) error     { return nil }
func (*deafSink) Committed() bool             { return true }

// What a target may send ahead is kept in memory for a client that does not read.
func TestHTTP2_BoundsWhatATargetSendsAhead(t *testing.T) {
	windows := make(chan uint32, 1)
	pool := poolOf(t, rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		_, _ = io.ReadFull(r, make([]byte, len(http2.ClientPreface)))
		f, _ := http2.NewFramer(c, r).ReadFrame()
		window, _ := f.(*http2.SettingsFrame).Value(http2.SettingInitialWindowSize)
		windows <- window
	}))
	pool.config.Protocol = config.ProtocolH2C
	pool.replaceTransport()
	defer pool.Close()
	r := &Request{Method: "GET", Path: "/", Host: "a", Fields: new(http1.Fields), Proto: "HTTP/2.0"}
	_ = pool.Forward(t.Context(), r, new(deafSink))
	if window := await.Value(t, windows, "SETTINGS"); window == 0 || window > 256<<10 {
		t.Errorf("a target may send %d bytes ahead, want at most 256 KiB", window)
	}
}

// A target that hangs accepts no more of a body than its windows have room for. net/http waits for that without end.
func TestHTTP2_TargetAcceptsNoBody(t *testing.T) {
	full := make(chan bool)
	c := versioned{t, 1, 2}.backend(func(_ http.ResponseWriter, r *http.Request) { <-full })
	defer close(full)
	c.Timeouts.Response = 300 * time.Millisecond
	pool := mustPool(t, c)
	defer pool.Close()
	body := strings.Repeat("x", 4<<20) // more than a server of net/http accepts
	for _, whole := range [][]byte{nil, []byte(body)} {
		r := &Request{
			Method: "POST", Path: "/", Host: "a", Fields: new(http1.Fields), Proto: "HTTP/2.0",
			Length: int64(len(body)), Body: &stopCounter{Reader: strings.NewReader(body)}, BufferedBody: whole,
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		if res := pool.Forward(ctx, r, new(deafSink)); res.Kind != Timeout || ctx.Err() != nil {
			t.Errorf("buffered %t: %+v, want Timeout", whole != nil, res)
		}
	}
}

// net/http keeps the texts of a head in the HPACK table of a connection, behind the end of the request whose buffer they
// may share: what another request writes there would be found as if it was what the target knows, and go to it under a
// text of another client, or end the process.
func TestHTTP2_KeepsNoTextOfARequest(t *testing.T) {
	c := versioned{t, 1, 2}.backend(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %s %v", r.Method, r.Host, r.RequestURI, r.Trailer)
	})
	p := startProxy(t, mustPool(t, c), nil)
	conn, r := p.dial(t, "")
	for range 900 {
		method, n := []string{"LOCK", "COPY", "MOVE", "LINK"}[rand.IntN(4)], rand.IntN(1000)
		host, path, name := fmt.Sprintf("h%03d.example", n%7), fmt.Sprintf("/a/%03d", n%11), fmt.Sprintf("X-Sum-%03d", n%13)
		if n%3 == 0 {
			path += fmt.Sprintf("?q=%03d", n)
		}
		send(t, conn, "%s %s HTTP/1.1\r\nHost: %s\r\nTrailer: %s\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%[4]s: 1\r\n\r\n", method, path, host, name)
		want := fmt.Sprintf("%s %s %s map[%s:[1]]", method, host, path, name)
		if _, got := answer(t, r, method); got != want {
			t.Fatalf("the target got %q; want %q", got, want)
		}
	}
}

// A hintCounter counts interim responses.
type hintCounter struct {
	Sink
	n int
}

func (h *hintCounter) Informational(int, *http1.Fields) { h.n++ }

// net/http exports no values for what a target does to a connection of HTTP/2, so that connectionClosed knows their
// texts. Real connections show that it knows those of this version of Go.
func TestConnectionClosed_KnowsTheErrorsOfNetHTTP(t *testing.T) {
	for name, end := range map[string]func(fr *http2.Framer, c net.Conn, stream uint32){
		"reset":       func(fr *http2.Framer, _ net.Conn, _ uint32) { _ = fr.WriteRSTStream(1, http2.ErrCodeInternal) },
		"GOAWAY":      func(fr *http2.Framer, c net.Conn, _ uint32) { _ = fr.WriteGoAway(1, http2.ErrCodeNo, nil); c.Close() },
		"unprocessed": func(fr *http2.Framer, _ net.Conn, _ uint32) { _ = fr.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"closed":      func(_ *http2.Framer, c net.Conn, _ uint32) { c.Close() },
		"not a word":  func(*http2.Framer, net.Conn, uint32) {}, // also no acknowledgement of PING
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := newHTTP2(Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C, Timeouts: config.Timeouts{Connect: time.Second, Response: time.Hour}}}, nil)
				defer transport.CloseIdleConnections()
				transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go serveBadly(server, end)
					return client, nil
				}
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a/", http.NoBody)
				if name == "unprocessed" {
					r.Body = io.NopCloser(strings.NewReader("abc")) // without one it is sent again
				}
				_, err := transport.RoundTrip(r)
				if err == nil || !connectionClosed(err) {
					t.Errorf("%v is no end of a connection", err)
				}
			})
		})
	}
}

// A target may have processed what it resets. net/http sends again what was refused, reset for an error of protocol or not
// processed before a GOAWAY, over new connections without end.
func TestHTTP2_ResetRequestsAreNotSentAgain(t *testing.T) {
	for name, end := range map[string]func(fr *http2.Framer, stream uint32) error{
		"protocol error": func(fr *http2.Framer, stream uint32) error { return fr.WriteRSTStream(stream, http2.ErrCodeProtocol) },
		"refused": func(fr *http2.Framer, stream uint32) error {
			return fr.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		},
		"internal error": func(fr *http2.Framer, stream uint32) error { return fr.WriteRSTStream(stream, http2.ErrCodeInternal) },
		"GOAWAY":         func(fr *http2.Framer, _ uint32) error { return fr.WriteGoAway(0, http2.ErrCodeNo, nil) },
	} {
		for method, most := range map[string]int32{http.MethodPost: 1, http.MethodGet: 2} {
			t.Run(name+" "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					pool := poolOf(t, "http://a")
					pool.config.Protocol = config.ProtocolH2C
					var sent atomic.Int32
					over := newHTTP2(pool.config, pool.backends)
					over.DialContext = func(context.Context, string, string) (net.Conn, error) {
						client, server := net.Pipe()
						go serveBadly(server, func(fr *http2.Framer, _ net.Conn, stream uint32) {
							sent.Add(1)
							_ = end(fr, stream)
						})
						return client, nil
					}
					pool.currentTransport.Store(new(transport(over)))
					defer pool.Close()
					defer synctest.Wait() // until the connection that was not used is idle
					began := time.Now()
					r := &Request{Method: method, Path: "/", Host: "a", Fields: new(http1.Fields), Proto: "HTTP/2.0"}
					res := pool.Forward(t.Context(), r, new(deafSink))
					if res.Kind != ConnectionReset || sent.Load() > most || time.Since(began) > 2*time.Second {
						t.Errorf("%+v after %v, sent %d times; want a reset at once, and at most %d", res, time.Since(began), sent.Load(), most)
					}
				})
			})
		}
	}
}

// serveBadly reads until a request has begun, and then does end. It reads on until the client closes.
func serveBadly(c net.Conn, end func(fr *http2.Framer, c net.Conn, stream uint32)) {
	defer c.Close()
	_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
	fr := http2.NewFramer(c, c)
	begun := make(chan uint32, 10)
	go func() {
		_ = fr.WriteSettings()
		for stream := range begun {
			end(fr, c, stream)
		}
	}()
	defer close(begun)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		if _, ok := f.(*http2.HeadersFrame); ok {
			begun <- f.Header().StreamID
		}
	}
}

// errNoUpgrade reports that an HTTP/2 connection cannot be handed over.
var errNoUpgrade = errors.New("HTTP/2 connection cannot be handed over")

// An HTTP2Sink is a Sink that writes to a server of net/http, with which tests stand for a client that
// another server than that of HTTP/1.1 serves.
type HTTP2Sink struct {
	ctx       context.Context // done when the client is gone
	stop      func() bool
	aborted   chan struct{}
	w         http.ResponseWriter
	trailers  []string // names of trailer fields that may follow
	committed bool
}

// NewHTTP2Sink returns a Sink that writes to w.
func NewHTTP2Sink(ctx context.Context, w http.ResponseWriter) *HTTP2Sink {
	return &HTTP2Sink{ctx: ctx, w: w}
}

// AbortWith makes the end of the context call a.Abort.
func (s *HTTP2Sink) AbortWith(a http1.Aborter) {
	if a == nil {
		if !s.stop() {
			<-s.aborted
		}
		return
	}
	s.aborted = make(chan struct{})
	s.stop = context.AfterFunc(s.ctx, func() { a.Abort(); close(s.aborted) })
}

// Informational implements Sink.
func (s *HTTP2Sink) Informational(status int, f *http1.Fields) {
	h := s.w.Header()
	for line := range f.All() {
		mapHeader(h).Add(line.Name, line.Value)
	}
	s.w.WriteHeader(status)
	clear(h)
}

// Begin implements Sink.
func (s *HTTP2Sink) Begin(status int, f *http1.Fields, length int64) error {
	h := s.w.Header()
	for line := range f.All() {
		mapHeader(h).Add(line.Name, line.Value)
	}
	if length >= 0 {
		h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	if len(s.trailers) > 0 {
		h["Trailer"] = []string{strings.Join(s.trailers, ", ")}
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // prevents that net/http guesses one
	}
	s.committed = true
	s.w.WriteHeader(status)
	if len(s.trailers) > 0 && length < 0 {
		return s.Flush() // otherwise net/http adds Content-Length to a short body, and some clients ignore a trailer section after that
	}
	return nil
}

// Write implements Sink.
func (s *HTTP2Sink) Write(p []byte) (int, error) { return s.w.Write(p) }

// Flush implements Sink.
func (s *HTTP2Sink) Flush() error { return http.NewResponseController(s.w).Flush() }

// End implements Sink. net/http sends the trailer when its handler returns.
func (s *HTTP2Sink) End(trailer *http1.Fields) error {
	h := s.w.Header()
	for line := range trailer.All() {
		name := http.CanonicalHeaderKey(line.Name)
		switch {
		case !trailerAllowed(name):
		case slices.Contains(s.trailers, name):
			mapHeader(h).Add(name, line.Value)
		default:
			h.Add(http.TrailerPrefix+strings.Clone(name), strings.Clone(line.Value))
		}
	}
	return nil
}

// SwitchProtocols implements Sink. It fails, because an HTTP/2 connection carries
// several requests.
func (s *HTTP2Sink) SwitchProtocols(string, *http1.Fields) (net.Conn, []byte, error) {
	return nil, nil, errNoUpgrade
}

// Committed implements Sink.
func (s *HTTP2Sink) Committed() bool { return s.committed }

// The endpoint of a target is found by the address for which net/http asks.
func TestHTTP2_ConnectsToEachKindOfHost(t *testing.T) {
	for _, text := range []string{"http://a.example", "http://a.example.:080", "https://a.example", "https://[::1]", "http://[fe80::1%25lo]:90", "unix:/run/a.sock"} {
		at, _ := url.Parse(text)
		p := New(Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C, Targets: []config.Target{{URL: at}}}, Groups: NewGroups(1)})
		asked := ""
		o := newHTTP2(p.config, p.backends)
		o.DialContext = func(_ context.Context, _, addr string) (net.Conn, error) {
			asked = addr
			return nil, net.ErrClosed
		}
		o.DialTLSContext = o.DialContext
		if _, err := o.probe(t.Context(), p.backends[0], "/", ""); asked != p.backends[0].dialAddress() {
			t.Errorf("%s: net/http asks for %q, not for %q: %v", text, asked, p.backends[0].dialAddress(), err)
		}
	}
}

// A part of a body is valid until OnBody returns: its memory may be another client's next. The poison build overwrites it.
func TestHTTP2_APartOfABodyIsNotKept(t *testing.T) {
	c := versioned{t, 1, 2}.backend(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })
	var part []byte
	told := ""
	p := startProxy(t, mustPool(t, c), func(r *Request, _ received) {
		r.OnBody = func(b []byte) { part, told = b, told+string(b) }
	})
	conn, r := p.dial(t, "")
	send(t, conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, got := answer(t, r, "GET"); got != "secret" {
		t.Errorf("the client got %q", got)
	}
	if <-p.results; told != "secret" {
		t.Errorf("OnBody got %q", told)
	}
	if reuse.Poisoned && bytes.Count(part, []byte{0xDB}) != len(part) {
		t.Errorf("after the end there is %q", part)
	}
}
