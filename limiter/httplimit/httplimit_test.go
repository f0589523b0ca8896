package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/httplimit"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/test/redistest"
)

func memory() *limiter.Memory { return limiter.NewMemory(limiter.MemoryOptions{}) }

// newLimiter returns a limiter of rules that count in store.
func newLimiter(t *testing.T, store limiter.Store, o httplimit.Options, rules ...httplimit.Rule) *httplimit.Limiter {
	t.Helper()
	l, err := httplimit.New(store, o, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start serves next behind l, and returns the server's URL.
func start(t *testing.T, l *httplimit.Limiter, next http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(l.Handler(next))
	t.Cleanup(s.Close)
	return s.URL
}

// ask sends a request with pairs of names and values of fields, and returns its response, whose
// body is read.
func ask(t *testing.T, url string, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response, string(body)
}

func wantStatus(t *testing.T, url string, want int, fields ...string) {
	t.Helper()
	if response, body := ask(t, url, fields...); response.StatusCode != want {
		t.Errorf("status %d, %s; want %d", response.StatusCode, body, want)
	}
}

func ok(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "done") }

func byPhone(rates ...string) httplimit.Rule {
	return httplimit.Rule{Name: "phone", Rates: rates, Key: httplimit.Header("X-Phone")}
}

// What a client sees is what it sees of the proxy.
func TestHandler_AnswersAsTheProxyDoes(t *testing.T) {
	url := start(t, newLimiter(t, memory(), httplimit.Options{}, byPhone("1/1m", "5/1h")), ok)
	response, body := ask(t, url, "X-Phone", "1")
	if response.StatusCode != 200 || body != "done" || response.Header.Get("RateLimit-Policy") != `"phone-1m";q=1;w=60, "phone-1h";q=5;w=3600` ||
		!strings.HasPrefix(response.Header.Get("RateLimit"), `"phone-1m";r=0;t=60, "phone-1h";r=4`) {
		t.Errorf("passed: %d %q %v", response.StatusCode, body, response.Header)
	}
	response, body = ask(t, url, "X-Phone", "1")
	var problem struct {
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatal(err, body)
	}
	h := response.Header
	if response.StatusCode != 429 || problem.Status != 429 || len(problem.Violated) != 1 || problem.Violated[0] != "phone-1m" ||
		h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" || h.Get("Retry-After") == "" {
		t.Errorf("refused: %d %s %v", response.StatusCode, body, h)
	}
	wantStatus(t, url, 200, "X-Phone", "2")
}

// A refused request counts under no rule.
func TestHandler_AllRulesOrNone(t *testing.T) {
	url := start(t, newLimiter(t, memory(), httplimit.Options{}, byPhone("1/1h"),
		httplimit.Rule{Name: "address", Rates: []string{"2/1h"}, Key: httplimit.RemoteIP}), ok)
	wantStatus(t, url, 200, "X-Phone", "1")
	wantStatus(t, url, 429, "X-Phone", "1")
	wantStatus(t, url, 429, "X-Phone", "1")
	wantStatus(t, url, 200, "X-Phone", "2") // the second of the address
	wantStatus(t, url, 429, "X-Phone", "3")
}

func TestHandler_Keys(t *testing.T) {
	url := start(t, newLimiter(t, memory(), httplimit.Options{}, byPhone("9/1h"),
		httplimit.Rule{Name: "vip", Rates: []string{"1/1h"}, Hidden: true, Key: func(r *http.Request) (string, error) {
			if r.Header.Get("Vip") == "" {
				return "", httplimit.ErrSkip
			}
			return "all", nil
		}}), ok)
	wantStatus(t, url, 400)
	wantStatus(t, url, 400, "X-Phone", " ")
	wantStatus(t, url, 400, "X-Phone", "1", "X-Phone", "2")
	wantStatus(t, url, 200, "X-Phone", "1")
	wantStatus(t, url, 200, "X-Phone", "1", "Vip", "1")
	response, body := ask(t, url, "X-Phone", "1", "Vip", "1")
	if response.StatusCode != 429 || strings.Contains(body, "vip") || strings.Contains(response.Header.Get("RateLimit"), "vip") || response.Header.Get("Retry-After") == "" {
		t.Errorf("a hidden rule: %d %s %v", response.StatusCode, body, response.Header)
	}
}

// A client that gets a 500 and asks again at once is not refused: the permit is back before the
// status is sent.
func TestHandler_RefundComesBeforeTheResponse(t *testing.T) {
	serves := []struct {
		name string
		next http.HandlerFunc
	}{
		{"status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(502) }},
		{"panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	}
	for _, c := range serves {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			l := newLimiter(t, memory(), httplimit.Options{Refund: func(status int) bool { return status >= 500 }}, byPhone("1/1h"))
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls++; c.next(w, r) }))
			for range 3 {
				func() {
					defer func() { _ = recover() }()
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("X-Phone", "1")
					h.ServeHTTP(httptest.NewRecorder(), r)
				}()
			}
			if calls != 3 {
				t.Errorf("%d of 3 requests passed", calls)
			}
		})
	}
}

// A client could otherwise leave as soon as its work is done, and get the permit back for the error that this causes.
func TestHandler_WhoLeavesKeepsThePermitTaken(t *testing.T) {
	passed := 0
	l := newLimiter(t, memory(), httplimit.Options{Refund: func(status int) bool { return status >= 500 }}, byPhone("1/1h"))
	for range 2 {
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.Header.Set("X-Phone", "1")
		l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			passed++
			leave()
			w.WriteHeader(502)
		})).ServeHTTP(httptest.NewRecorder(), r)
		leave()
	}
	if passed != 1 {
		t.Errorf("%d requests passed; want 1", passed)
	}
}

func TestHandler_OtherStatusesKeepThePermit(t *testing.T) {
	for name, next := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"write":   ok,
		"status":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"late": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "x")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler) // after a 200 the permit is used
		},
	} {
		t.Run(name, func(t *testing.T) {
			passed := 0
			l := newLimiter(t, memory(), httplimit.Options{Refund: func(status int) bool { return status >= 500 }}, byPhone("1/1h"))
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed++; next(w, r) }))
			for range 2 {
				func() {
					defer func() { _ = recover() }()
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("X-Phone", "1")
					h.ServeHTTP(httptest.NewRecorder(), r)
				}()
			}
			if passed != 1 {
				t.Errorf("%d requests passed; want 1", passed)
			}
		})
	}
}

// Streams and upgraded connections work behind a limiter that watches the status.
func TestHandler_KeepsWhatWritersCan(t *testing.T) {
	o := httplimit.Options{Refund: func(status int) bool { return status >= 500 }}
	release := make(chan struct{})
	defer close(release)
	url := start(t, newLimiter(t, memory(), o, byPhone("9/1h")), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello\n")
			rw.Flush()
			return
		}
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-release
	})

	r, _ := http.NewRequest("GET", url, nil)
	r.Header.Set("X-Phone", "1")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "first\n" {
		t.Errorf("a stream begins with %q, %v", line, err)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Phone: 1\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	if all, err := io.ReadAll(c); !strings.HasSuffix(string(all), "hello\n") {
		t.Errorf("an upgraded connection has %q, %v", all, err)
	}
}

// A broken store is an unavailable one.
type broken struct{ limiter.Store }

func (broken) Take(context.Context, []limiter.Claim, *limiter.Decision) error {
	return limiter.ErrUnavailable
}

func TestHandler_StoreUnavailable(t *testing.T) {
	url := start(t, newLimiter(t, broken{}, httplimit.Options{}, byPhone("1/1h")), ok)
	if response, _ := ask(t, url, "X-Phone", "1"); response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" {
		t.Errorf("status %d %v; want 503 with Retry-After", response.StatusCode, response.Header)
	}
	url = start(t, newLimiter(t, broken{}, httplimit.Options{AllowOnFailure: true}, byPhone("1/1h")), ok)
	wantStatus(t, url, 200, "X-Phone", "1")
	wantStatus(t, url, 400) // a request without a key is refused all the same
}

// A slow store answers when a client has left.
type slow struct{ limiter.Store }

func (slow) Take(ctx context.Context, _ []limiter.Claim, _ *limiter.Decision) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", limiter.ErrUnavailable, ctx.Err())
}

// Otherwise leaving at once would be a way around all limits.
func TestHandler_WhoLeavesDoesNotPass(t *testing.T) {
	l := newLimiter(t, slow{}, httplimit.Options{AllowOnFailure: true}, byPhone("1/1h"))
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("X-Phone", "1")
	l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("an uncounted request has passed") })).
		ServeHTTP(httptest.NewRecorder(), r)
}

// Two servers with one Redis let through exactly as many requests as the rate allows.
func TestHandler_ServersCountTogether(t *testing.T) {
	server := redistest.Start(t)
	var urls []string
	for range 2 {
		client, err := redisstore.NewClient(redisstore.ClientConfig{Addrs: []string{server.Addr}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		store := redisstore.New(client, redisstore.Options{Timeout: time.Minute})
		t.Cleanup(func() { store.Close() })
		urls = append(urls, start(t, newLimiter(t, store, httplimit.Options{Timeout: time.Minute}, byPhone("20/1h")), ok))
	}
	var passed atomic.Int64
	var wg sync.WaitGroup
	for i := range 80 {
		wg.Go(func() {
			if response, _ := ask(t, urls[i%2], "X-Phone", "1"); response.StatusCode == 200 {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if passed.Load() != 20 {
		t.Errorf("%d of 80 passed; want 20", passed.Load())
	}
}

func TestHandler_InAChiRouter(t *testing.T) {
	l := newLimiter(t, memory(), httplimit.Options{Reject: respond.Reject{Status: 420}}, httplimit.Rule{
		Name: "user", Rates: []string{"1/1h"}, Key: func(r *http.Request) (string, error) { return chi.URLParam(r, "id"), nil },
	})
	r := chi.NewRouter()
	r.With(l.Handler).Get("/users/{id}", ok)
	s := httptest.NewServer(r)
	defer s.Close()
	wantStatus(t, s.URL+"/users/1", 200)
	wantStatus(t, s.URL+"/users/1", 420)
	wantStatus(t, s.URL+"/users/2", 200)
}

func TestNew_NamesWhatIsNotValid(t *testing.T) {
	key := httplimit.RemoteIP
	for want, rules := range map[string][]httplimit.Rule{
		"there is none":                 nil,
		"use letters":                   {{Name: "a b", Rates: []string{"1/1s"}, Key: key}},
		"it has no Key":                 {{Name: "a", Rates: []string{"1/1s"}}},
		`it has no Rates`:               {{Name: "a", Key: key}},
		"the unit is a letter":          {{Name: "a", Rates: []string{"1/minute"}, Key: key}},
		"two rates have the window 1m":  {{Name: "a", Rates: []string{"1/1m", "2/60s"}, Key: key}},
		`two have the name "a"`:         {{Name: "a", Rates: []string{"1/1s"}, Key: key}, {Name: "a", Rates: []string{"1/1s"}, Key: key}},
		"concurrent needs more":         {{Name: "a", Rates: []string{"1/1s"}, Key: key, Algorithm: limiter.Concurrent}},
		"distinct needs more":           {{Name: "a", Rates: []string{"1/1s"}, Key: key, Algorithm: limiter.Distinct}},
		"cooldown needs more":           {{Name: "a", Rates: []string{"1/1s"}, Key: key, Algorithm: limiter.Cooldown}},
		"only gcra":                     {{Name: "a", Rates: []string{"1/1s"}, Key: key, Burst: 2}},
		"129 rates; the maximum is 128": many(key),
	} {
		if _, err := httplimit.New(memory(), httplimit.Options{}, rules...); !errors.Is(err, httplimit.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v; want %q", err, want)
		}
	}
	if _, err := httplimit.New(memory(), httplimit.Options{Fields: "other"}, byPhone("1/1s")); !errors.Is(err, httplimit.ErrInvalid) {
		t.Errorf("an unknown style: %v", err)
	}
}

// many returns 129 rules.
func many(key func(*http.Request) (string, error)) (out []httplimit.Rule) {
	for i := range 129 {
		out = append(out, httplimit.Rule{Name: "a" + strings.Repeat("b", i), Rates: []string{"1/1s"}, Key: key})
	}
	return out
}

func TestRemoteIP(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:1234":              "192.0.2.7",
		"[::ffff:192.0.2.7]:1234":     "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:1234": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1234":         "fe80::/64",
		"[64:ff9b::192.0.2.7]:1234":   "192.0.2.7", // behind NAT64
		"[64:ff9b::10.0.0.7]:1234":    "64:ff9b::/64",
		"@":                           "",
	} {
		got, err := httplimit.RemoteIP(&http.Request{RemoteAddr: addr})
		if got != want || (err != nil) != (want == "") {
			t.Errorf("RemoteIP of %q = %q, %v; want %q", addr, got, err, want)
		}
	}
}
