package upstream

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// testTimeout is how long a test waits for what must happen. It is a failure to
// reach it.
const testTimeout = await.Limit

// A testProxy is a server of HTTP/1.1 that forwards everything to one pool, with real
// sockets on both sides, and keeps the results.
type testProxy struct {
	URL     string
	results chan Result
}

// received is what a testProxy knows of a request.
type received struct {
	*http1.Fields
	limit func(most int64) // of the body
}

// startProxy starts a testProxy before pool. change may change what is asked of it.
func startProxy(t testing.TB, pool *Pool, change func(*Request, received)) *testProxy {
	t.Helper()
	p := &testProxy{results: make(chan Result, 1000)}
	s := &http1.Server{HalfClose: http1.AbortOnHalfClose, Handler: func(x *http1.Exchange) {
		d := new(http1.Duplex)
		d.Open(x)
		r := requestOf(d)
		r.forwarding, _ = x.State.(*forwarding) // of the last request on this connection
		if change != nil {
			change(r, received{r.Fields, func(most int64) { x.Body().Limit(most) }})
		}
		res := pool.Forward(&http1.Context{Exchange: x}, r, d)
		if f := r.forwarding; f != nil && !reflect.DeepEqual(*f, forwarding{writer: fieldWriter{buf: f.writer.buf}}) {
			t.Errorf("%+v is left of a request that has ended", *f)
		}
		x.State = r.forwarding
		p.results <- res
		switch {
		case res.Kind == OK:
		case res.HeaderSent:
			x.Abort()
		default:
			x.Begin(statusOf(res))
			_ = x.Send(nil)
		}
	}}
	l := sockettest.Listen(t)
	p.URL = "http://" + l.Addr().String()
	l = sockettest.Listener(t, l)
	go func() { _ = sockettest.Accept(l, s.ServeConn) }()
	t.Cleanup(func() { l.Close(); s.Close(); pool.Close() })
	return p
}

func statusOf(res Result) int {
	if status, known := map[ResultKind]int{BadRequest: 400, BodyTooLarge: 413, Timeout: 504, LoopDetected: 508}[res.Kind]; known {
		return status
	}
	return http.StatusBadGateway
}

// requestOf is a request over HTTP/1.1 whose peer is not trusted.
func requestOf(d *http1.Duplex) *Request {
	x := d.Exchange()
	peer := x.NetConn().RemoteAddr().(*net.TCPAddr).AddrPort()
	path := x.Path()
	if u, err := url.ParseRequestURI(path); err == nil && path != "*" {
		path = u.EscapedPath()
	}
	r := &Request{
		Method: x.Method(), Path: path, Host: x.Host(), Fields: &x.Fields, Proto: x.Proto(), Scheme: "http", Client: peer.Addr(), Peer: peer,
	}
	r.RawQuery, r.ForceQuery = x.RawQuery()
	if b := x.Body(); b != nil {
		r.Length, r.Body = b.Length(), d
	}
	return r
}

// netRequestOf is requestOf for a request that net/http has.
func netRequestOf(r *http.Request) *Request {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	path := r.URL.EscapedPath()
	if r.RequestURI == "*" {
		path = "*"
	}
	to := &Request{
		Method: r.Method, Path: path, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery, Host: r.Host, Fields: fieldsFromRequest(r),
		Proto: r.Proto, Scheme: "http", Client: peer.Addr(), Peer: peer,
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		to.Length, to.Body = r.ContentLength, netBody{r}
	}
	return to
}

// A netBody is the body of a request that net/http has.
type netBody struct{ *http.Request }

func (b netBody) Read(p []byte) (int, error) { return b.Body.Read(p) }
func (b netBody) Stop()                      { _ = b.Body.Close() }
func (b netBody) Trailer() *http1.Fields     { return fieldsFromHeader(b.Request.Trailer) }

// forwardNet forwards a request that net/http has.
func forwardNet(p *Pool, w http.ResponseWriter, r *http.Request) Result {
	return p.Forward(r.Context(), netRequestOf(r), NewHTTP2Sink(r.Context(), w))
}

// result is what came of the last request.
func (p *testProxy) result(t testing.TB) Result {
	t.Helper()
	return await.Value(t, p.results, "a result")
}

// statuses returns what text says, as 404 or 5xx.
func statuses(t testing.TB, text string) config.Statuses {
	t.Helper()
	s := make(config.Statuses, 1)
	if err := s[0].Parse(text); err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPool(t testing.TB, c Config) *Pool {
	t.Helper()
	c.Pseudonym = cmp.Or(c.Pseudonym, "weir-test")
	if len(c.Health.Status) == 0 {
		c.Health.Status = statuses(t, "2xx")
	}
	c.Groups = cmp.Or(c.Groups, NewGroups(1))
	return New(c)
}

func mustURL(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// poolOf is a pool of the servers at these URLs.
func poolOf(t testing.TB, urls ...string) *Pool {
	t.Helper()
	c := Config{Upstream: config.Upstream{Name: "test", Timeouts: config.Timeouts{Connect: testTimeout, Response: testTimeout}}, Pseudonym: "weir-test"}
	if s, ok := t.(sockettest.Secured); ok {
		c.TLS.Roots = s.Client.RootCAs
	}
	for _, u := range urls {
		c.Targets = append(c.Targets, config.Target{URL: mustURL(t, u)})
	}
	return mustPool(t, c)
}

// startBackend starts an upstream that is a net/http server.
func startBackend(t testing.TB, handle http.HandlerFunc) string {
	t.Helper()
	if _, ok := t.(sockettest.Secured); ok {
		return newTLS(t, handle).URL
	}
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// newTLS is an upstream that speaks TLS with a certificate nobody knows.
func newTLS(t testing.TB, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handle)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// rawBackend is an upstream that does with each connection what serve does, and
// closes it then.
func rawBackend(t testing.TB, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l := sockettest.Listen(t)
	address := l.Addr().String()
	l = sockettest.Listener(t, l)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(testTimeout))
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	return sockettest.Scheme(t) + address
}

// startReplying is a raw upstream that reads one request's head a connection, sends
// it to heads, and writes answer.
func startReplying(t testing.TB, answer string) (url string, heads <-chan string) {
	t.Helper()
	seen := make(chan string, 100)
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		head := readHead(r)
		seen <- head
		_, _ = io.WriteString(c, answer)
	}), seen
}

// readHead reads up to the empty line.
func readHead(r *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

// dial opens a connection to the proxy and writes request.
func (p *testProxy) dial(t testing.TB, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := sockettest.Dial(t, strings.TrimPrefix(p.URL, "http://"), request)
	return c.Conn, c.Reader
}

// ask sends request as it is and reads one answer.
func (p *testProxy) ask(t testing.TB, request string) (*http.Response, string) {
	t.Helper()
	_, r := p.dial(t, request)
	method, _, _ := strings.Cut(request, " ")
	return answer(t, r, method)
}

// answer reads one response whole.
func answer(t testing.TB, r *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read body of answer: %v", err)
	}
	return res, string(body)
}

// send writes to a connection.
func send(t testing.TB, w io.Writer, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(w, format, args...); err != nil {
		t.Fatal(err)
	}
}

// request is one that no server has read.
func request(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "127.0.0.1:9"
	return r
}

// silent is a ResponseWriter that nobody listens to.
type silent struct{ header http.Header }

func (s silent) Header() http.Header         { return s.header }
func (s silent) Write(p []byte) (int, error) { return len(p), nil }
func (s silent) WriteHeader(int)             {}

// firstOf is the first value of a field, or "".
func firstOf(r received, name string) string {
	value, _ := r.Lookup(name)
	return value
}

// fieldsFromRequest returns the fields of a request of net/http, including Trailer, which it has removed
// from the header.
func fieldsFromRequest(r *http.Request) *http1.Fields {
	f := fieldsFromHeader(r.Header)
	if names := slices.Sorted(maps.Keys(r.Trailer)); len(names) > 0 {
		f.Add("Trailer", strings.Join(names, ", "))
	}
	return f
}

// preferred says of each target of p whether it is preferred.
func preferred(p *Pool) (all []bool) {
	targets, _ := p.TargetStandings()
	for i := range targets {
		all = append(all, targets[i].IsPreferred())
	}
	return all
}
