// Package test looks at Weir from outside: it builds the binary, runs it as a
// process, and talks to it as clients, operators and failing machines do.
package test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// TestMain builds weir once and puts it first on PATH, for every test and
// script to run by its name. It has the race detector built in unless -short is
// given.
func TestMain(m *testing.M) {
	race := weirtest.Race()
	_ = flag.Set("test.parallel", "8") // they wait for processes and clocks; there is such a flag
	weirtest.Main(m, race...)
}

// testTimeout is how long a test waits for what must happen, on a busy machine.
const testTimeout = await.Limit

// A weir is one running process of the binary under test.
type weir struct {
	*weirtest.Process
	Dir  string // the working directory
	File string // the configuration
	log  *logtest.Log

	t *testing.T
}

// start writes a configuration (the listeners are added) to a folder of its own,
// starts weir with it, and waits until it is ready.
func start(t *testing.T, config string) *weir {
	t.Helper()
	file := weirtest.Write(t, config+weirtest.Listeners)
	return startWith(t, filepath.Dir(file), "-c", file)
}

// startWith starts weir in dir with args; the configuration must name 127.0.0.1:0
// for both listeners.
func startWith(t *testing.T, dir string, args ...string) *weir {
	t.Helper()
	return launch(t, dir, exec.Command("weir", args...))
}

// launch is startWith for a command that the caller makes.
func launch(t *testing.T, dir string, cmd *exec.Cmd) *weir {
	t.Helper()
	cmd.Dir = dir
	p := weirtest.Start(t, cmd)
	return &weir{p, dir, filepath.Join(dir, "weir.yaml"), p.Log, t}
}

// check ends the test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edit replaces the configuration in place, as a person with a plain editor does.
func (w *weir) edit(config string) {
	w.t.Helper()
	write(w.t, w.File, config+weirtest.Listeners)
}

// get fetches a page of the admin side, or anything else.
func (w *weir) get(url string) (status int, body string) {
	w.t.Helper()
	return do(w.t, http.MethodGet, url, nil)
}

// reload asks for a reload as an operator does.
func (w *weir) reload() (status int, body string) {
	w.t.Helper()
	return do(w.t, http.MethodPost, w.Admin+"/reload", nil)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	filetest.Write(t, text, file)
}

// do sends one request without a body and reads the whole answer.
func do(t *testing.T, method, url string, header http.Header) (status int, body string) {
	t.Helper()
	status, _, body = exchange(t, method, url, header)
	return status, body
}

// exchange is do with the answer's header.
func exchange(t *testing.T, method, url string, header http.Header) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	check(t, err)
	if header != nil {
		req.Header = header
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return res.StatusCode, res.Header, string(body)
}

// send asks for a code to be sent to phone, and returns the status.
func (w *weir) send(phone string) int {
	w.t.Helper()
	status, _ := do(w.t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {phone}})
	return status
}

// statuses sends n requests for phone, one after the other.
func (w *weir) statuses(phone string, n int) []int {
	w.t.Helper()
	out := make([]int, n)
	for i := range out {
		out[i] = w.send(phone)
	}
	return out
}

// wantStatuses checks the statuses of answers.
func wantStatuses(t *testing.T, of string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: the answers are %v, want %v", of, got, want)
	}
}

// A load is clients that keep their connections and ask again and again. They
// use POST, which Go's client never sends twice by itself.
type load struct {
	stop func() // waits for their last answers

	mu      sync.Mutex // guards what follows
	answers map[int]int
	errors  []string
	slowest time.Duration
}

// keepAsking has so many clients ask at that pace, each over a connection of its own, until
// the caller stops them or the test ends.
func keepAsking(t *testing.T, clients int, pace time.Duration, ask func(client int, c *http.Client)) (stop func()) {
	t.Helper()
	over := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}, Timeout: testTimeout}
			defer c.CloseIdleConnections()
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for {
				select {
				case <-over:
					return
				case <-tick.C:
					ask(i, c)
				}
			}
		})
	}
	stop = sync.OnceFunc(func() { close(over); all.Wait() })
	t.Cleanup(stop)
	return stop
}

// startLoad starts a load of so many clients. The n-th request of a client has that header.
func startLoad(t *testing.T, clients int, url string, header func(client, n int) http.Header) *load {
	t.Helper()
	l, sent := &load{answers: map[int]int{}}, make([]int, clients)
	l.stop = keepAsking(t, clients, 5*time.Millisecond, func(i int, c *http.Client) { // the processors are for what is tested
		l.send(c, url, header(i, sent[i]))
		sent[i]++
	})
	return l
}

// send sends one request and notes what came of it.
func (l *load) send(client *http.Client, url string, header http.Header) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		l.note(0, 0, err)
		return
	}
	req.Header = header
	began := time.Now()
	res, err := client.Do(req)
	if err != nil {
		l.note(0, time.Since(began), err)
		return
	}
	_, err = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	l.note(res.StatusCode, time.Since(began), err)
}

func (l *load) note(status int, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errors = append(l.errors, err.Error())
	} else {
		l.answers[status]++
	}
	l.slowest = max(l.slowest, took)
}

// waitForMore waits until n further answers of any status have come.
func (l *load) waitForMore(t *testing.T, n int) {
	t.Helper()
	goal := l.total() + n
	await.Until(t, "the load goes on", func() bool { return l.total() >= goal })
}

func (l *load) total() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.errors)
	for _, answers := range l.answers {
		n += answers
	}
	return n
}

// wantOnly fails the test if any answer was not of that status.
func (l *load) wantOnly(t *testing.T, status int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errors) > 0 {
		t.Errorf("%d requests failed, the first: %s", len(l.errors), l.errors[0])
	}
	for got, n := range l.answers {
		if got != status {
			t.Errorf("%d answers of status %d under load, want only %d", n, got, status)
		}
	}
	if l.answers[status] == 0 {
		t.Errorf("no answer of status %d at all", status)
	}
}

// A countingBackend is a server behind weir, in this process.
type countingBackend struct {
	*httptest.Server
	seen atomic.Int64
}

// hits is how many requests have reached the server.
func (c *countingBackend) hits() int { return int(c.seen.Load()) }

// startBackend starts a server that does what h says and ends with the test.
func startBackend(t *testing.T, h http.HandlerFunc) *countingBackend {
	t.Helper()
	a := new(countingBackend)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.seen.Add(1)
		h(w, r)
	}))
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

// waitForRelease waits until the test lets go, or the client has gone.
func waitForRelease(r *http.Request, release <-chan struct{}) {
	select {
	case <-release:
	case <-r.Context().Done():
	}
}

// redisYAML is the configuration of a store that several proxies share. Its
// timeout is long, for tests in which a busy machine must not look like a Redis
// that is away.
func redisYAML(addr string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 5s}\n", addr)
}

// redisDefaultYAML is shared with the timeout that operators have by default.
func redisDefaultYAML(addr string) string {
	return fmt.Sprintf("store: redis\nredis: {addrs: [%q]}\n", addr)
}

// smsYAML is a route with one limit per phone, answered by weir itself.
func smsYAML(rates string, more string) string {
	return fmt.Sprintf(`upstreams: {demo: echo}
routes:
  - name: sms-send
    match: {methods: [POST], path: /v1/sms/send}
    upstream: demo
    limits:
      - {name: phone, key: "header:X-Phone", rates: [%s]%s}
`, rates, more)
}

// redisClient speaks to a Redis server directly.
func redisClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: testTimeout})
	t.Cleanup(func() { c.Close() })
	return c
}

// writeCertificate writes a certificate and its key into dir, as cert.pem and key.pem.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	cert, key := certtest.New(t, "example.com", "127.0.0.1")
	write(t, filepath.Join(dir, "cert.pem"), cert)
	write(t, filepath.Join(dir, "key.pem"), key)
}
