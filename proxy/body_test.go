package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

// bodyKeyYAML is a route with a limit by what is in the body and these others.
func bodyKeyYAML(more string) string {
	return "listen: {max_buffered: 1MiB}\nkeys: {phone: json:/phone}\nroutes:\n" +
		"  - {name: a, match: {path: /}, upstream: echo, limits: [{name: phone, key: phone, rate: 100/1h}" + more + "]}\n"
}

// What is kept of all bodies is bounded, and the last eighth is for bodies that begin; who comes then
// is told to come back, and the memory is there again when the bodies are.
func TestServe_BodiesTogetherAreBounded(t *testing.T) {
	f := startServer(t, "client_ip: {trusted_proxies: [127.0.0.1]}\n"+bodyKeyYAML(""))
	const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.%d\r\nContent-Length: 65536\r\n\r\n"
	half := `{"phone": "1", "pad": "` + strings.Repeat("x", 40_000)
	const short = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.%d\r\nContent-Length: 4096\r\n\r\n{"
	const honest = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.254\r\nContent-Length: 14\r\n\r\n{\"phone\": \"1\"}"
	var waiting []*sockettest.Client
	for i := range 14 { // 14 times 64 KiB is all there is for those that are long
		waiting = append(waiting, f.dial(fmt.Sprintf(head, i)+half))
	}
	f.until(func() bool { return f.buffers.InUse() == 14*64<<10 })
	f.dial(fmt.Sprintf(head, 99) + half).WantStatus(503)
	f.dial(honest).WantStatus(200)
	for i := range 32 { // and 32 times 4 KiB for those that are short
		f.dial(fmt.Sprintf(short, 100+i))
	}
	f.until(func() bool { return f.buffers.InUse() == 1<<20 })
	answer, body := f.dial(honest).WantStatus(503)
	if answer.Header.Get("Retry-After") == "" || !strings.Contains(body, "temporary-reduced-capacity") {
		t.Errorf("503 with %v: %s", answer.Header, body)
	}
	rest := strings.Repeat("x", 65536-len(half)-2) + `"}`
	for _, w := range waiting {
		w.Send(rest)
		w.WantStatus(200)
	}
	f.until(func() bool { return f.buffers.InUse() == 32*4<<10 })
	f.dial(honest).WantStatus(200)
}

// A limit in shadow mode refuses nothing: a body that is too long for its key to be read is forwarded whole.
func TestServe_LongBodyInShadowMode(t *testing.T) {
	for _, protocol := range []string{"http1", "h2c"} {
		got := 0
		up := startVersion(t, protocol, func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = len(body)
		})
		sent := `{"phone": "1", "pad": "` + strings.Repeat("x", 100<<10) + `"}`
		for mode, want := range map[string]int{"shadow": 200, "enforce": 413} {
			p := newProxy(t, "upstreams: {sms: "+up+"}\nroutes:\n  - {match: {path: /}, upstream: sms, limits: [{key: json:/phone, rate: 5/1h, mode: "+mode+"}]}\n")
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(sent))
			r.Header.Set("Content-Type", "application/json")
			rec := httptest.NewRecorder()
			p.ServeHTTP(rec, r)
			if rec.Code != want || want == 200 && got != len(sent) {
				t.Errorf("%s, %s: %d, with %d of %d bytes forwarded; want %d", protocol, mode, rec.Code, got, len(sent), want)
			}
		}
	}
}

// A body that is read through a buffer of the connection or the stream counts that as well.
func TestServe_BuffersOfConnectionsCount(t *testing.T) {
	f := startServer(t, strings.Replace(bodyKeyYAML(""), "{max", "{h2c: true, max", 1))
	w := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{")
	f.until(func() bool { return f.buffers.InUse() == http1.BodyBufferSize+(4<<10) })
	w.Send("\"phone\": \"1\"}\r\n0\r\n\r\n")
	w.WantStatus(200)
	f.until(func() bool { return f.buffers.InUse() == 0 })
	for _, c := range []struct {
		length string
		want   int64
	}{{"60000", (16 + 4) << 10}, {"100", 100 + 141} /* what the stream and the allocator take */} {
		s := f.speaks()
		s.begins(1, append(request("POST", "/"), "content-type", "application/json", "content-length", c.length)...)
		if err := s.WriteData(1, false, []byte("{")); err != nil {
			t.Fatal(err)
		}
		f.until(func() bool { return f.buffers.InUse() == c.want })
		s.conn.Close()
		f.until(func() bool { return f.buffers.InUse() == 0 })
	}
}

func TestServe_ABodyWithAKeyIsShortUnlessTheRouteSays(t *testing.T) {
	long := func(n int) string { return `{"phone": "1", "pad": "` + strings.Repeat("x", n-25) + `"}` }
	w := newProxy(t, bodyKeyYAML(""))
	w.posts(200, "/", long(64<<10))
	w.posts(413, "/", long(64<<10+1))
	w = newProxy(t, strings.Replace(bodyKeyYAML(""), "upstream: echo", "upstream: echo, body: {max: 100KiB}", 1))
	w.posts(200, "/", long(100<<10))
	w.posts(413, "/", long(100<<10+1))
}

// trailed is a route whose limits read all that a header can hold, in a file for
// one upstream that speaks a protocol.
const trailed = `
listen: {h2c: true}
client_ip: {header: X-Client, trusted_proxies: [192.0.2.1]}
keys:
  phone: {from: "header:X-Phone", on_missing: skip, set_header: X-Phone-Clean}
  number: {from: "json:/phone", on_missing: skip}
lists: {friends: {key: {from: "header:X-Friend", on_missing: skip}, values: [a], action: bypass}}
upstreams: {u: %s}
routes:
  - name: a
    match: {path: /a, methods: [POST]}
    upstream: u
    lists: [friends]
    rewrite: {headers: {set: {X-From: weir, X_Odd: weir}, remove: [X-Gone]}}
    idempotency: {}
    limits:
      - {name: phone, key: phone, rate: 9/1m, cost: "header:X-Cost", max_cost: 5}
      - {name: fan, key: client_ip, distinct: {from: "header:X-Fan", on_missing: skip}, rate: 9/1m}
  - name: marked
    match: {path: /a, methods: [POST], headers: {X-App: "*"}}
    upstream: u
    limits: [{name: number, key: number, rate: 9/1m}]
  - {name: b, match: {path: /b}, upstream: u}
`

// A trailerRequest is a request with one trailer of each of these names.
type trailerRequest struct {
	url    string
	header http.Header
	names  []string
}

// withTrailer sends q by a client that speaks one protocol.
func withTrailer(t *testing.T, client *http.Client, q trailerRequest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	body := &eofNotifier{Reader: strings.NewReader(`{"phone": "1"}`)}
	r, err := http.NewRequestWithContext(ctx, "POST", q.url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header, r.Trailer = q.header, http.Header{}
	r.Header.Set("Content-Type", "application/json")
	for _, name := range q.names {
		r.Trailer[name] = nil
	}
	body.ends = func() {
		for _, name := range q.names {
			r.Trailer[name] = []string{"late"}
		}
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: %s %s, %v", q.url, res.Status, text, err)
	}
}

// An eofNotifier calls ends when all has been read.
type eofNotifier struct {
	io.Reader
	ends func()
}

func (e *eofNotifier) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err == io.EOF {
		e.ends()
	}
	return n, err
}

// protocolsOf is what speaks HTTP/1.1 alone, or HTTP/2 with prior knowledge alone.
func protocolsOf(protocol string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(protocol == "http1")
	p.SetUnencryptedHTTP2(protocol == "h2c")
	return p
}

// startTrailerUpstream is an upstream that tells the names of the trailers it has got.
func startTrailerUpstream(t *testing.T, protocol string, got chan<- []string) (upstream string) {
	t.Helper()
	return startVersion(t, protocol, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		var names []string
		for name, values := range r.Trailer {
			if len(values) > 0 || protocol == "h2c" { // announced there, whether or not it came
				names = append(names, name)
			}
		}
		slices.Sort(names)
		got <- names
	})
}

// startVersion is an upstream that speaks one version of HTTP, as a configuration says it.
func startVersion(t *testing.T, protocol string, handle http.HandlerFunc) (upstream string) {
	t.Helper()
	s := httptest.NewUnstartedServer(handle)
	s.Config.Protocols = protocolsOf(protocol)
	s.Start()
	t.Cleanup(s.Close)
	return fmt.Sprintf("{targets: ['%s'], protocol: %s}", s.URL, protocol)
}

// A framework that merges trailers into the header would act on a key that nobody
// has counted: none goes by the name of a field that the route reads or sets, or by
// one that some server takes for it.
func TestForward_TrailersThatMayPassForHeader(t *testing.T) {
	kept := []string{"X-Phone", "X_phone", "X.phone", "X-Phone-Clean", "X_phone_clean", "X-Cost", "X-Friend", "X-Fan", "Idempotency-Key",
		"X-From", "X-Odd", "X-Gone", "X_gone", "X-Client", "X-Real-Ip", "X-Request-Id", "X_request_id", "Via", "Forwarded", "X-Forwarded-Port", "X_forwarded_for", "Cookie"}
	for _, down := range []string{"http1", "h2c"} {
		for _, up := range []string{"http1", "h2c"} {
			t.Run(down+" to "+up, func(t *testing.T) {
				t.Parallel()
				got := make(chan []string, 1)
				f := startServer(t, fmt.Sprintf(trailed, startTrailerUpstream(t, up, got)))
				transport := &http.Transport{Protocols: protocolsOf(down), ResponseHeaderTimeout: enough}
				t.Cleanup(transport.CloseIdleConnections)
				ask := func(path string, header http.Header, names ...string) []string {
					t.Helper()
					withTrailer(t, &http.Client{Transport: transport, Timeout: 2 * time.Minute}, trailerRequest{"http://" + f.addr + path, header, names})
					return await.Value(t, got, "request at the upstream")
				}
				if names := ask("/a", http.Header{}, append(kept, "X-Sum", "X-App")...); !slices.Equal(names, []string{"X-Sum"}) {
					t.Errorf("the upstream gets %q; want X-Sum alone", names)
				}
				// The body has been read before, for its key; X-App has chosen the route.
				if names := ask("/a", http.Header{"X-App": {"1"}}, "X-Sum", "X-App", "X_app", "X-Phone", "X-Phone-Clean", "X-Request-Id"); !slices.Equal(names, []string{"X-Phone", "X-Sum"}) {
					t.Errorf("the upstream gets %q; want X-Sum and X-Phone, which nothing is read from there", names)
				}
				if names := ask("/b", http.Header{}, "X-Sum", "X-Phone", "X-App", "X-Phone-Clean"); !slices.Equal(names, []string{"X-Phone", "X-Sum"}) {
					t.Errorf("the upstream gets %q; want X-Sum and X-Phone", names)
				}
			})
		}
	}
}
