package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/test/await"
)

// Whatever the versions on both sides are, target and client see the same: fields,
// bodies as they come, and the trailers that may be sent on.
func TestVersions_SameRequestSameResponse(t *testing.T) {
	overVersions(t, func(t versioned) {
		p, client := t.open(t.backend(talk), func(r *Request) {
			r.RequestID, r.Set = "r1", map[string][]string{"X-Set": {"ours"}, "X-Gone": {}, "User-Agent": {}}
			r.OnHeader = func(_ int, h *http1.Fields) { h.Set("X-Quota", "1"); h.Del("X-Hidden") }
		})
		body, say := io.Pipe()
		r := post(t, p.URL+"/a%2Fb?c;d", body)
		r.Host = "x.example"
		r.Header = http.Header{"X-Set": {"theirs"}, "X_set": {"theirs"}, "X-Gone": {"1"}, "Te": {"trailers"}, "X-Forwarded-For": {"6.6.6.6"}, "X-Kept": {"1", "2"}}
		r.Trailer = http.Header{"X-Sum": nil, "X-Forwarded-For": nil, "X-Set": nil}
		res := ask(t, client, r)
		proto := map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"}[t.upstream]
		via := map[int]string{1: "1.1", 2: "2.0"}[t.downstream]
		if got, want := strings.TrimSpace(res.Header.Get("X-Seen")), proto+" POST /a%2Fb?c;d x.example te=trailers"; got != want {
			t.Errorf("target sees %q, want %q", got, want)
		}
		if got, want := res.Header.Get("X-Fields"), "via="+via+" weir-test id=r1 set=ours gone= agent= for=127.0.0.1 kept=1,2"; got != want {
			t.Errorf("target sees %q, want %q", got, want)
		}
		if res.Header.Get("X-Quota") != "1" || res.Header.Get("X-Hidden") != "" || res.Header.Get("Via") != "" || res.Header.Get("Alt-Svc") != "" || len(res.Header["Content-Type"]) > 0 {
			t.Errorf("client sees %v", res.Header)
		}
		lines := bufio.NewReader(res.Body)
		for _, word := range []string{"one\n", "two\n"} {
			send(t, say, "%s", word)
			if got, err := lines.ReadString('\n'); got != word {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		r.Trailer.Set("X-Sum", "42")
		r.Trailer.Set("X-Forwarded-For", "6.6.6.6")
		r.Trailer.Set("X-Set", "theirs")
		say.Close()
		rest, err := io.ReadAll(lines)
		if err != nil || len(rest) > 0 || len(res.Trailer["X-Sum"]) != 1 || res.Trailer.Get("X-Sum") != "X-Sum=42!" || res.Trailer.Get("X-Late") != "1" || res.Trailer["Set-Cookie"] != nil {
			t.Errorf("rest %q, %v, trailers %v", rest, err, res.Trailer)
		}
		if got := p.result(t); got.Kind != OK || got.Status != 200 || !got.HeaderSent || got.FirstByte <= 0 {
			t.Errorf("result %+v", got)
		}
	})
}

// Bodies that were read before are sent as if they had not been, with their trailer, and at once: the client waits for
// nothing any more.
func TestVersions_BufferedBody(t *testing.T) {
	overVersions(t, func(t versioned) {
		p, client := t.open(t.backend(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			w.Header().Set("X-Seen", string(body)+" "+r.Trailer.Get("X-Sum")+r.Header.Get("Expect"))
			if err != nil {
				t.Error(err)
			}
		}), func(r *Request) {
			var err error
			if r.BufferedBody, err = io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
		})
		r := post(t, p.URL, io.MultiReader(strings.NewReader("hello")))
		r.Trailer = http.Header{"X-Sum": {"7"}}
		r.Header.Set("Expect", "100-continue")
		for range 2 {
			r.Body = io.NopCloser(strings.NewReader("hello"))
			if got := ask(t, client, r).Header.Get("X-Seen"); got != "hello 7" {
				t.Errorf("target sees %q", got)
			}
			if got := p.result(t); got.Kind != OK {
				t.Errorf("result %+v", got)
			}
		}
	})
}

func TestVersions_InterimResponses(t *testing.T) {
	overVersions(t, func(t versioned) {
		p, client := t.open(t.backend(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "ok")
		}), nil)
		var hints atomic.Pointer[string]
		trace := &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			if link := h.Get("Link"); status == http.StatusEarlyHints {
				hints.Store(&link)
			}
			return nil
		}}
		r := post(t, p.URL, nil)
		res := ask(t, client, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		body, err := io.ReadAll(res.Body)
		if link := hints.Load(); link == nil || *link != "</a.css>" || res.Header.Get("Link") != "" || string(body) != "ok" || err != nil || res.ContentLength != 2 {
			t.Errorf("hints %v, then %v %q, %v", hints.Load(), res.Header, body, err)
		}
	})
}

// Where an answer says no length, none is made up: a 204 must not have one. An answer without a body says how long one
// would have been.
func TestVersions_LengthsOfNoBody(t *testing.T) {
	overVersions(t, func(t versioned) {
		p, client := t.open(t.backend(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.Header().Set("Content-Length", "7")
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}), nil)
		r := post(t, p.URL, nil)
		for method, want := range map[string]int{http.MethodPost: http.StatusNoContent, http.MethodHead: http.StatusOK} {
			r.Method = method
			length := strings.Join(ask(t, client, r).Header["Content-Length"], " ")
			if got := p.result(t); got.Kind != OK || got.Status != want || length != map[int]string{http.StatusOK: "7"}[want] {
				t.Errorf("%s: length %q, result %+v", method, length, got)
			}
		}
	})
}

// An answer that is whole before the body has come ends both, and no reader of the body
// is left.
func TestVersions_EarlyResponse(t *testing.T) {
	overVersions(t, func(t versioned) {
		p, client := t.open(t.backend(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			w.Header().Set("Content-Length", "2")
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "no")
		}), nil)
		body, say := io.Pipe()
		defer say.Close()
		res := ask(t, client, post(t, p.URL, body))
		text, err := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusForbidden || string(text) != "no" || err != nil {
			t.Errorf("got %s %q, %v", res.Status, text, err)
		}
		if got := p.result(t); got.Kind != OK || got.Status != http.StatusForbidden {
			t.Errorf("result %+v", got)
		}
	})
}

// An answer that is cut looks cut, and the result says so.
func TestVersions_TruncatedResponse(t *testing.T) {
	overVersions(t, func(t versioned) {
		p, client := t.open(t.backend(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}), nil)
		res, err := client.Do(post(t, p.URL, nil))
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if err == nil {
			t.Error("the answer looks whole")
		}
		if got := p.result(t); got.Kind != ResponseTruncated || !got.HeaderSent || got.Status != 200 || got.Err == nil {
			t.Errorf("result %+v", got)
		}
	})
}

// A client that leaves ends the target's work.
func TestVersions_ClientGone(t *testing.T) {
	overVersions(t, func(t versioned) {
		arrived, ended := make(chan bool, 1), make(chan bool, 1)
		p, client := t.open(t.backend(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			arrived <- true
			<-r.Context().Done()
			ended <- true
		}), nil)
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			res, err := client.Do(post(t, p.URL, strings.NewReader("hello")).WithContext(ctx))
			if err == nil {
				res.Body.Close()
			}
			gone <- err
		}()
		await.Value(t, arrived, "request")
		leave()
		await.Value(t, ended, "end of the target's work")
		if err := await.Value(t, gone, "end of the request"); !errors.Is(err, context.Canceled) {
			t.Errorf("client: %v", err)
		}
		if got := p.result(t); got.Kind != ClientGone || got.HeaderSent {
			t.Errorf("result %+v", got)
		}
	})
}

// The loop that acquires, sends, judges and sends again is one for all versions.
func TestVersions_Retries(t *testing.T) {
	overVersions(t, func(t versioned) {
		alive := t.backend(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		c := alive
		c.Retries = 1
		c.Targets = append([]config.Target{{URL: mustURL(t, closedURL(t))}}, alive.Targets...)
		p, client := t.open(c, nil)
		res := ask(t, client, post(t, p.URL, io.MultiReader(strings.NewReader("hello"))))
		body, err := io.ReadAll(res.Body)
		if string(body) != "hello" || err != nil {
			t.Errorf("got %s %q, %v", res.Status, body, err)
		}
		if got := p.result(t); got.Kind != OK || got.Retries != 1 || got.Target != alive.Targets[0].URL.String() {
			t.Errorf("result %+v", got)
		}
	})
}

// A body that cannot be read is the client's fault, and nobody is asked again.
func TestVersions_BodyTooLarge(t *testing.T) {
	for _, upstream := range []int{1, 2} {
		t.Run(map[int]string{1: "to HTTP1", 2: "to HTTP2"}[upstream], func(t *testing.T) {
			v := versioned{t, 1, upstream}
			c := v.backend(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			c.Retries = 1
			p := startProxy(t, mustPool(t, c), func(_ *Request, r received) { r.limit(3) })
			_, r := p.dial(t, "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n")
			if res, _ := answer(t, r, "PUT"); res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("status %s", res.Status)
			}
			if got := p.result(t); got.Kind != BodyTooLarge || got.Retries != 0 {
				t.Errorf("result %+v", got)
			}
		})
	}
}

// What asks a target how it fares speaks the target's version.
func TestVersions_Probe(t *testing.T) {
	for _, upstream := range []int{1, 2} {
		v := versioned{t, 1, upstream}
		seen := make(chan string, 2)
		c := v.backend(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Proto + " " + r.RequestURI + " " + r.UserAgent() + " " + r.Header.Get("Via")
			w.WriteHeader(http.StatusNoContent)
		})
		c.Health = config.Health{After: 1, Path: "/healthz?a", Interval: testTimeout, Timeout: testTimeout}
		p := mustPool(t, c)
		if err := p.probe(t.Context(), p.backends[0]); err != nil {
			t.Error(err)
		}
		if got, want := await.Value(t, seen, "look"), map[int]string{1: "HTTP/1.1", 2: "HTTP/2.0"}[upstream]+" /healthz?a weir-health 1.1 weir-test"; got != want {
			t.Errorf("target sees %q, want %q", got, want)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := p.probe(ended, p.backends[0]); err == nil {
			t.Error("a look that has no time left goes well")
		}
		p.Close()
	}
}

// A versioned test runs for clients of HTTP/1.1 and of HTTP/2, each before targets of
// HTTP/1.1 and of HTTP/2.
type versioned struct {
	*testing.T
	downstream, upstream int // major versions
}

func overVersions(t *testing.T, test func(t versioned)) {
	t.Helper()
	for _, c := range []struct {
		name                 string
		downstream, upstream int
	}{{"HTTP1 to HTTP1", 1, 1}, {"HTTP1 to HTTP2", 1, 2}, {"HTTP2 to HTTP1", 2, 1}, {"HTTP2 to HTTP2", 2, 2}} {
		t.Run(c.name, func(t *testing.T) { test(versioned{t, c.downstream, c.upstream}) })
	}
}

// backend starts a target and is the configuration of a pool that has only that.
func (v versioned) backend(handle http.HandlerFunc) Config {
	if v.upstream == 1 {
		return Config{Upstream: config.Upstream{Targets: []config.Target{{URL: mustURL(v, startBackend(v, handle))}}, Timeouts: config.Timeouts{Connect: testTimeout, Response: testTimeout}}, Pseudonym: "weir-test"}
	}
	l := listen(v, "tcp", "127.0.0.1:0")
	newH2C(v, l, handle)
	return Config{Upstream: config.Upstream{Protocol: config.ProtocolH2C, Targets: []config.Target{{URL: mustURL(v, "http://"+l.Addr().String())}}, Timeouts: config.Timeouts{Connect: testTimeout, Response: testTimeout}}, Pseudonym: "weir-test"}
}

// open starts a proxy before a pool of c, and a client of it.
func (v versioned) open(c Config, change func(*Request)) (*testProxy, *http.Client) {
	pool := mustPool(v, c)
	if v.downstream == 2 {
		p, client := openHTTP2(v.T, pool, change)
		return p, client
	}
	p := startProxy(v, pool, func(r *Request, _ received) {
		if change != nil {
			change(r)
		}
	})
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	v.Cleanup(client.CloseIdleConnections)
	return p, client
}

// ask makes a request of client.
func ask(t testing.TB, client *http.Client, r *http.Request) *http.Response {
	t.Helper()
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// post is a request with a body of unknown length.
func post(t testing.TB, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
