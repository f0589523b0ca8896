package test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

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
	if err != nil {
		t.Fatal(err)
	}
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

// A load is clients that keep their connections and ask again and again. They
// use POST, which Go's client never sends twice by itself.
type load struct {
	stopping chan struct{}
	clients  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	answers map[int]int
	errors  []string
	slowest time.Duration
}

// A loadRequest is what clients of a load send: to where, and with which header for
// the n-th request of a client.
type loadRequest struct {
	url    string
	header func(client, n int) http.Header
}

// startLoad starts a load of so many clients; it ends with the test at the latest.
func startLoad(t *testing.T, clients int, v loadRequest) *load {
	l := &load{stopping: make(chan struct{}), answers: map[int]int{}}
	for c := range clients {
		l.clients.Go(func() {
			transport := &http.Transport{MaxIdleConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, Timeout: testTimeout}
			for n := 0; !l.stopped(); n++ {
				l.send(client, v.url, v.header(c, n))
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) stopped() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
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

// stop stops the clients and waits for their last answers.
func (l *load) stop() {
	l.mu.Lock()
	if !l.stopped() {
		close(l.stopping)
	}
	l.mu.Unlock()
	l.clients.Wait()
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
