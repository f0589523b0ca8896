package faults

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/sockettest"
)

const (
	big  = 20_000   // bytes of a response
	huge = 64 << 20 // more than all buffers on the way take
)

// startUpstream starts an upstream that answers with as many bytes as the path says.
func startUpstream(t *testing.T) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/huge":
			w.Header().Set("Content-Length", fmt.Sprint(huge))
			piece := make([]byte, 64<<10)
			for range huge / len(piece) {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		default:
			_, _ = w.Write(make([]byte, big))
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// atOnce is how many requests of a key may be in progress.
const atOnce = 8

// forwards starts weir in front of an upstream. All its timeouts are short.
func forwards(t *testing.T, upstream string) *weir {
	t.Helper()
	return start(t, fmt.Sprintf(`
upstreams:
  api: {targets: ["http://%s"], timeouts: {connect: 500ms, response: 1s, idle: 1s}, health: {after: 1000}}
routes:
  - {name: all, match: {path: /*}, upstream: api, limits: [{key: "header:X-Key", concurrent: %d}]}
`, upstream, atOnce), "")
}

// wantPermits waits until as many requests as before may be in progress: those that ended
// in a fault have given theirs back.
func (w *weir) wantPermits(url string) {
	w.Helper()
	var got answers
	await.Until(w.T, "all permits are back", func() bool {
		got = w.askMany(atOnce, atOnce, func() answer { return w.ask(url+"/", "one", 0) })
		return got.status[200] == atOnce && got.failed == 0
	}, stringer(func() string { return got.String() }))
}

// A linkFault disturbs the connections between Weir and its upstream, or its clients.
type linkFault struct {
	name   string
	quick  bool
	toxics []string
	upload int // bytes of the request
	status int // of the responses
	cut    bool
	within time.Duration // what the configured timeouts allow
}

var upstreamFaults = []linkFault{
	{"latency of 200 ms", true, both("latency", `"latency": 100`), 0, 200, false, time.Second},
	{"jitter, 0 to 200 ms", false, both("latency", `"latency": 50, "jitter": 50`), big, 200, false, time.Second},
	{"responses in small pieces", false, []string{toxic("slicer", "downstream", `"average_size": 100, "size_variation": 50, "delay": 1000`)}, 0, 200, false, 2 * time.Second},
	{"bandwidth of 20 KB/s", false, []string{toxic("bandwidth", "downstream", `"rate": 20`)}, 0, 200, false, 3 * time.Second},
	{"latency beyond timeouts.response", false, both("latency", `"latency": 5000`), 0, 504, false, time.Second},
	{"reset after 50 ms", true, []string{afresh, toxic("reset_peer", "downstream", `"timeout": 50`)}, 0, 502, false, time.Second},
	{"half-open: responses vanish", false, []string{toxic("timeout", "downstream", `"timeout": 0`)}, big, 504, false, time.Second},
	{"black hole", true, both("timeout", `"timeout": 0`), 0, 504, false, time.Second},
	{"cut after 5000 bytes of the response", true, []string{toxic("limit_data", "downstream", `"bytes": 5000`)}, 0, 200, true, time.Second},
	{"bandwidth of 1 KB/s", false, []string{toxic("bandwidth", "downstream", `"rate": 1`)}, 0, 200, false, 25 * time.Second},
	{"connections refused", false, []string{down}, 0, 502, false, time.Second},
}

// Whatever happens between Weir and an upstream, each client gets the right status, in
// time, and a response that is cut does not look whole.
func TestUpstream(t *testing.T) {
	t.Parallel()
	for _, f := range upstreamFaults {
		if !f.quick && !all() {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			l := newLink(t, startUpstream(t))
			w := forwards(t, l.Listen)
			w.wantPermits(w.URL)
			w.settle()
			l.disturb(f.toxics...)
			f.asks(w, w.URL, "upstream")
			l.heal()
			w.wantPermits(w.URL)
			w.wantNoLeak()
		})
	}
}

// asks sends requests and looks at their responses.
func (f linkFault) asks(w *weir, url, where string) {
	w.Helper()
	a := w.askMany(atOnce, atOnce, func() answer {
		a := w.ask(url+"/", "one", f.upload)
		if a.status == 200 && (a.body == big) == f.cut {
			w.Errorf("%d bytes of %d, cut: %v, and the error is %v", a.body, big, f.cut, a.err)
		}
		return a
	})
	row(w.T, where, f.name, a)
	failed := 0
	if f.cut {
		failed = atOnce
	}
	if !a.only(f.status) || a.failed != failed {
		w.Errorf("%v; want status %d, and %d that fail", a, f.status, failed)
	}
	if a.slowest > f.within+slack {
		w.Errorf("a response took %v; the timeouts allow %v", a.slowest, f.within)
	}
}

var clientFaults = []linkFault{
	{"latency of 200 ms", true, both("latency", `"latency": 100`), big, 200, false, time.Second},
	{"requests and responses in small pieces", false, both("slicer", `"average_size": 100, "size_variation": 50, "delay": 1000`), big, 200, false, 2 * time.Second},
	{"bandwidth of 20 KB/s", false, both("bandwidth", `"rate": 20`), big, 200, false, 4 * time.Second},
	{"cut after 5000 bytes of the response", true, []string{toxic("limit_data", "downstream", `"bytes": 5000`)}, 0, 200, true, time.Second},
	{"cut after 5000 bytes of the request", false, []string{toxic("limit_data", "upstream", `"bytes": 5000`)}, big, 0, true, time.Second},
	{"reset after 50 ms", true, []string{toxic("reset_peer", "upstream", `"timeout": 50`)}, 0, 0, true, time.Second},
}

// Clients on bad lines get whole responses, however long that takes, and others cost
// nothing once they are gone.
func TestClients(t *testing.T) {
	t.Parallel()
	for _, f := range clientFaults {
		if !f.quick && !all() {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := forwards(t, startUpstream(t))
			l := newLink(t, strings.TrimPrefix(w.URL, "http://"))
			w.wantPermits(w.URL)
			w.settle()
			l.disturb(f.toxics...)
			f.asks(w, "http://"+l.Listen, "clients")
			l.heal()
			w.wantPermits("http://" + l.Listen)
			w.wantNoLeak()
		})
	}
}

var silentClients = []struct {
	name, says string
	hears      string // the begin of what Weir says at the end
}{
	{"say nothing", "", ""},
	{"stop within the head", "GET / HTTP/1.1\r\nHost: a\r\nX-Key: o", "HTTP/1.1 408"},
	{"stop within the body", "POST / HTTP/1.1\r\nHost: a\r\nX-Key: one\r\nContent-Length: 100\r\n\r\nhalf", "HTTP/1.1 408"},
}

// startImpatient starts weir with short timeouts for clients.
func startImpatient(t *testing.T) *weir {
	t.Helper()
	w := start(t, fmt.Sprintf(`
upstreams:
  api: {targets: ["http://%s"], timeouts: {response: 1s}}
routes:
  - {name: all, match: {path: /*}, upstream: api, limits: [{key: "header:X-Key", concurrent: %d}]}
`, startUpstream(t), atOnce), `sed -i 's/listen: {/&timeouts: {header: 1s, body: 1s, write: 1s, idle: 1s}, /' "$0"`)
	w.wantPermits(w.URL)
	w.settle()
	return w
}

// Clients that fall silent hold nothing for longer than listen.timeouts say.
func TestClients_Silent(t *testing.T) {
	t.Parallel()
	w := startImpatient(t)
	l := newLink(t, strings.TrimPrefix(w.URL, "http://"))
	for _, c := range silentClients {
		began := time.Now()
		var clients sync.WaitGroup
		for range atOnce {
			conn := sockettest.Dial(t, l.Listen, c.says)
			clients.Go(func() {
				if said, _ := io.ReadAll(conn); !strings.HasPrefix(string(said), c.hears) || c.hears == "" && len(said) > 0 {
					t.Errorf("clients that %s get %q, want %q", c.name, said, c.hears)
				}
			})
		}
		clients.Wait()
		row(t, "clients", fmt.Sprintf("%d clients %s", atOnce, c.name), cmp.Or(strings.TrimPrefix(c.hears, "HTTP/1.1 "), "no response"),
			", closed within ", time.Since(began).Milliseconds(), " ms")
		w.wantPermits(w.URL)
	}
	w.wantNoLeak()
}

// Clients that do not read their response hold it no longer than listen.timeouts.write.
func TestClients_DoNotRead(t *testing.T) {
	t.Parallel()
	w := startImpatient(t)
	l := newLink(t, strings.TrimPrefix(w.URL, "http://"))
	began := time.Now()
	var clients []*sockettest.Client
	for range atOnce {
		c := sockettest.Dial(t, l.Listen, "GET /huge HTTP/1.1\r\nHost: a\r\nX-Key: one\r\n\r\n")
		if line, err := c.Reader.ReadString('\n'); line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("got %q, %v", line, err)
		}
		clients = append(clients, c)
	}
	w.wantPermits(w.URL)
	row(t, "clients", fmt.Sprintf("%d clients do not read 64 MB", atOnce), "cut after ", time.Since(began).Milliseconds(), " ms")
	whole := 0 // one may still be in time when the clients begin to read
	for _, c := range clients {
		if n, _ := io.Copy(io.Discard, c); n >= huge {
			whole++
		}
	}
	if whole > atOnce/2 {
		t.Errorf("%d of %d responses came whole", whole, atOnce)
	}
	w.wantNoLeak()
}
