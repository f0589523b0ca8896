// Package memory measures how much of it a running weir takes.
package memory

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/rounds"
	"github.com/weir-proxy/weir/test/weirtest"
)

// enough is how long a test waits for what must happen.
const enough = 2 * time.Minute

// A weir is one that runs as a process of its own.
type weir struct {
	*testing.T
	pid         int
	addr, admin string
}

// TestMain builds weir once, without the race detector, which takes memory of its own.
// Weir is built without the race detector, which takes memory of its own.
func TestMain(m *testing.M) { weirtest.Main(m) }

// run starts weir in front of url, until the test ends. More of its configuration may
// be given.
func run(t *testing.T, url, limit string, more ...string) *weir {
	t.Helper()
	return runRoutes(t, "[{match: {path: /*}, upstream: '"+url+"', limits: ["+limit+"]}]\n"+strings.Join(more, "\n"))
}

// runRoutes is run with these routes.
func runRoutes(t *testing.T, routes string) *weir {
	t.Helper()
	if !strings.Contains(routes, "listen:") {
		routes += "\nlisten: {http: '127.0.0.1:0', timeouts: {idle: 10m}}"
	}
	file := weirtest.Write(t, "admin: {http: '127.0.0.1:0'}\nroutes: "+routes)
	cmd := exec.Command("weir", "run", "-c", file)
	cmd.Env = append(os.Environ(), "GOGC="+garbage)
	p := weirtest.Start(t, cmd)
	return &weir{t, p.PID(), strings.TrimPrefix(p.URL, "http://"), p.Admin}
}

// garbage is how much of it the heap holds at most, in percent of what lives.
const garbage = "5"

// easy is a limit that nobody meets.
const easy = "{key: client_ip, rate: 1000000/1s}"

// resident is how much memory the process has, in bytes; most is the highest it
// ever was.
func (w *weir) resident() (now, most int64) {
	w.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(words[1], 10, 64)
		switch words[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			most = kib << 10
		}
	}
	return now, most
}

// held is how much memory weir holds, in bytes: its heap, with little garbage, and its
// stacks. This is what weir itself decides; how much of it is resident, and how much the
// system gives for it, is a matter of the machine.
func (w *weir) held() (bytes int64) {
	w.Helper()
	answer, err := http.Get(w.admin + "/metrics")
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	found := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "go_memstats_heap_alloc_bytes", "go_memstats_stack_inuse_bytes":
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				w.Fatal(err)
			}
			bytes, found = bytes+int64(n), found+1
		}
	}
	if found != 2 {
		w.Fatalf("%d of the 2 metrics of memory", found)
	}
	return bytes
}

// zeros are n bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// However much is sent up or down, it streams: what is held is a matter of
// buffers.
func TestMemory_StreamsTakeNone(t *testing.T) {
	const most = 20 << 20
	size := int64(rounds.Of(128 << 20))
	upstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost {
			fmt.Fprint(rw, n)
			return
		}
		rw.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		io.Copy(rw, zeros(size))
	}))
	t.Cleanup(upstream.Close)
	w := run(t, upstream.URL, easy)
	client := &http.Client{Timeout: enough}
	t.Cleanup(client.CloseIdleConnections)
	get := func(r *http.Request) (int64, string) {
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		head, _ := bufio.NewReader(io.LimitReader(answer.Body, 20)).ReadString('\n')
		rest, err := io.Copy(io.Discard, answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return int64(len(head)) + rest, head
	}
	ask := func(method string, n int64) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.addr+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			r.Body, r.ContentLength = io.NopCloser(zeros(n)), n
		}
		return r
	}
	get(ask(http.MethodPost, 1<<20))
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid), []byte("5"), 0) // forgets the most of the start, if the system can
	before, _ := w.resident()
	began := time.Now()
	if _, got := get(ask(http.MethodPost, size)); got != strconv.FormatInt(size, 10) {
		t.Errorf("the upstream read %s bytes; want %d", got, size)
	}
	if got, _ := get(ask(http.MethodGet, 0)); got != size {
		t.Errorf("the client read %d bytes; want %d", got, size)
	}
	_, peak := w.resident()
	t.Logf("%d MiB up and down in %v: %d MiB resident before, %d at most", size>>20, time.Since(began).Round(time.Millisecond), before>>20, peak>>20)
	if grown := peak - before; grown > most {
		t.Errorf("grown by %d MiB; want less than %d", grown>>20, most>>20)
	}
}

// A connection that waits for its next request is cheap, once the rush in which
// it came is over: it holds no buffer, and its stack has shrunk.
func TestMemory_IdleConnections(t *testing.T) {
	const most = 8_192
	n, fixed := 10_000, int64(0)
	w := run(t, "echo", easy)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if room := int(files.Cur) - 200; n > room {
		t.Logf("only %d connections: that many files may be open", room)
		n, fixed = room, 8<<20 // what grows once, whatever their number, weighs more on few
	}
	before := w.held()
	var opened sync.WaitGroup
	next := make(chan bool)
	for range 50 {
		opened.Go(func() {
			for range next {
				w.idle()
			}
		})
	}
	for range n {
		next <- true
	}
	close(next)
	opened.Wait()
	rush := w.held()
	after := rush
	await.Within(t, enough, fmt.Sprintf("%d bytes at most for an idle connection", most), func() bool {
		after = w.held()
		return after-before <= most*int64(n)+fixed
	})
	t.Logf("%d idle connections: %d MiB held before, %d after the rush, then %d: %d bytes each", n, before>>20, rush>>20, after>>20, (after-before)/int64(n))
}

// idle opens a connection, asks once, and leaves it open until the test ends.
func (w *weir) idle() {
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.Error(err)
		return
	}
	w.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(enough))
	io.WriteString(c, "GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.Error(err)
		return
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// A weir that nobody has asked anything holds little: what only some configurations or
// pages need is not made when it starts.
func TestMemory_AfterStart(t *testing.T) {
	const most = 4 << 20
	w := run(t, "http://127.0.0.1:1", easy)
	held := w.held()
	t.Logf("%d KiB", held>>10)
	if held > most {
		t.Errorf("a weir holds %d KiB after its start; want at most %d", held>>10, most>>10)
	}
}

// A route with a limit costs little, by what the process holds: what most routes have in common they share.
// It is 5 KiB, and a fourth more in a program with the race detector, as that of a whole run is.
func TestMemory_Routes(t *testing.T) {
	const most, n = 7 << 10, 1_000
	var routes strings.Builder
	for i := range n {
		fmt.Fprintf(&routes, "  - {name: r%d, match: {path: /api/r%d/*}, upstream: 'http://127.0.0.1:1', limits: [{key: header:X-Key, rate: %d/1m}]}\n", i, i, i%3+1)
	}
	before := run(t, "http://127.0.0.1:1", easy).held()
	w, each := runRoutes(t, "\n"+routes.String()), int64(0)
	await.Within(t, enough, fmt.Sprintf("%d bytes at most for a route", most), func() bool { // what reading the file took is garbage
		each = (w.held() - before) / n
		return each <= most
	})
	t.Logf("%d bytes a route", each)
}
