package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// curl runs curl without a configuration of its own, and returns what it wrote.
func curl(t *testing.T, args ...string) string {
	t.Helper()
	return mustRun(t, "curl", append([]string{"-q", "-sS", "--noproxy", "*"}, args...)...)
}

// echoing is a Weir whose upstream tells what it was asked.
func echoing(t *testing.T) testProxy {
	return startProxy(t, "listen: {h2c: true}\nroutes: [{match: {path: /*}, upstream: echo, limits: [{key: client_ip, rate: 100000/1s}]}]\n")
}

// An echoed is what Weir's own upstream was asked.
type echoed struct {
	Method, Host, Path, Query, Body string
	Length                          int64
	Headers, Trailers               http.Header
}

func echoedBy(t *testing.T, text string) echoed {
	t.Helper()
	var e echoed
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return e
}

// Every way in which curl can come to speak HTTP, and the version it ends with.
func TestCurl_Versions(t *testing.T) {
	d := echoing(t)
	for how, c := range map[string]struct {
		args []string
		want string
	}{
		"1.0":                  {[]string{"--http1.0", "http://" + d.plain}, "1.1"},
		"1.1":                  {[]string{"--http1.1", "http://" + d.plain}, "1.1"},
		"2 by upgrade":         {[]string{"--http2", "http://" + d.plain}, "1.1"}, // the wish is not heard
		"2 by prior knowledge": {[]string{"--http2-prior-knowledge", "http://" + d.plain}, "2"},
		"1.1 in TLS":           {[]string{"--http1.1", "--cacert", d.ca, "https://" + d.secure}, "1.1"},
		"2 in TLS":             {[]string{"--http2", "--cacert", d.ca, "https://" + d.secure}, "2"},
	} {
		args := append([]string{"-d", "hello", "-w", "\n%{http_version} %{response_code}"}, c.args...)
		args[len(args)-1] += "/a?b=c;d"
		text, end, _ := strings.Cut(curl(t, args...), "\n}\n")
		if strings.Replace(strings.TrimSpace(end), "1.0", "1", 1) != c.want+" 200" {
			t.Errorf("%s: ends with %q; want %s", how, end, c.want)
		}
		e := echoedBy(t, text+"}")
		if e.Method != "POST" || e.Path != "/a" || e.Query != "b=c;d" || e.Body != "hello" {
			t.Errorf("%s: the upstream was asked %+v", how, e)
		}
		if e.Headers["Upgrade"] != nil || e.Headers["Http2-Settings"] != nil || e.Headers["Connection"] != nil {
			t.Errorf("%s: the upstream was sent %v", how, e.Headers)
		}
	}
}

func TestCurl_Head(t *testing.T) {
	d := echoing(t)
	for _, args := range [][]string{{"http://" + d.plain}, {"--cacert", d.ca, "https://" + d.secure}} {
		text := strings.ToLower(curl(t, append([]string{"-I", "--next", "-q", "-sS", "-I"}, append(args, args...)...)...))
		if strings.Count(text, "content-length: ") == 0 || strings.Contains(text, "{") {
			t.Errorf("answered %q; want the length and no body", text)
		}
	}
}

// A hundred requests over one connection, one after the other and at the same
// time.
func TestCurl_OneConnection(t *testing.T) {
	d := echoing(t)
	for how, args := range map[string][]string{
		"in turn":  {"http://" + d.plain + "/[1-100]"},
		"together": {"-Z", "--http2", "--cacert", d.ca, "https://" + d.secure + "/[1-100]"},
	} {
		text := curl(t, append([]string{"-o", os.DevNull, "-w", "%{response_code} %{num_connects}\n"}, args...)...)
		ok, connects := strings.Count(text, "200 "), strings.Count(text, "200 1\n")
		if ok != 100 || how == "in turn" && connects != 1 {
			t.Errorf("%s: %d answers and %d connections; want 100 and 1", how, ok, connects)
		}
	}
}

// The body is asked for before it is sent, and not asked for by a refusal.
func TestCurl_Continue(t *testing.T) {
	d := startProxy(t, "routes: [{match: {path: /*}, upstream: echo, limits: [{key: global, rate: 1/1h}]}]\n")
	big := sparseFile(t, 4<<20)
	ask := func() string {
		return curl(t, "-v", "-H", "Expect: 100-continue", "--expect100-timeout", "60", "-T", big, "-o", os.DevNull,
			"-w", "\n%{response_code} after %{size_upload} bytes", "http://"+d.plain+"/x")
	}
	if text := ask(); !strings.Contains(text, "100 Continue") || !strings.HasSuffix(text, fmt.Sprintf("200 after %d bytes", 4<<20)) {
		t.Errorf("curl says %s; want 100 Continue and 200", tail(text))
	}
	if text := ask(); strings.Contains(text, "100 Continue") || !strings.HasSuffix(text, "429 after 0 bytes") {
		t.Errorf("curl says %s; want 429 and nothing sent", tail(text))
	}
}

// tail is the end of a long text.
func tail(text string) string { return text[max(0, len(text)-2000):] }

// sparseFile is a file of so many zeros.
func sparseFile(t *testing.T, size int64) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "zeros")
	write(t, path, nil)
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCurl_BigUpload(t *testing.T) {
	const size = 100 << 20
	d, big := echoing(t), sparseFile(t, size)
	for how, args := range map[string][]string{
		"with a length": {"http://" + d.plain}, "in chunks": {"-H", "Transfer-Encoding: chunked", "http://" + d.plain},
		"over h2c":   {"--http2-prior-knowledge", "http://" + d.plain},
		"2 in TLS":   {"--cacert", d.ca, "https://" + d.secure},
		"1.1 in TLS": {"--http1.1", "--cacert", d.ca, "https://" + d.secure},
	} {
		// What echo gives back of it is not text, and long.
		text := curl(t, append([]string{"-T", big}, args...)...)
		if !strings.Contains(text, fmt.Sprintf(`"length": %d`, size)) {
			t.Errorf("%s: answered %s; want %d bytes", how, tail(text), size)
		}
	}
}

// An answer's trailer comes to the client in each version that has one.
func TestCurl_Trailers(t *testing.T) {
	up := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
	}))
	d := startProxy(t, "listen: {h2c: true}\nroutes: [{match: {path: /*}, upstream: 'http://"+up+"'}]\n")
	for how, args := range map[string][]string{
		"1.1": {"--raw", "http://" + d.plain}, "h2c": {"--http2-prior-knowledge", "http://" + d.plain},
		"2 in TLS": {"--cacert", d.ca, "https://" + d.secure},
	} {
		text := strings.ToLower(curl(t, append([]string{"-i", "-H", "TE: trailers"}, args...)...))
		header, rest, _ := strings.Cut(text, "\r\n\r\n")
		if strings.Contains(header, "x-sum") && !strings.Contains(header, "trailer: x-sum") || !strings.Contains(rest, "x-sum: 42") {
			t.Errorf("%s: answered\n%s\nwant x-sum: 42 after the body", how, text)
		}
	}
}

// What only a proxy of another kind is asked for is refused, and the one form of
// it that every server must understand is understood.
func TestCurl_AsIfAForwardProxy(t *testing.T) {
	d := echoing(t)
	if text, err := run(t, "curl", "-q", "-sS", "-o", os.DevNull, "-w", "%{http_connect}", "-p", "-x", "http://"+d.plain, "http://a.example/x"); err == nil || !strings.Contains(text, "405") {
		t.Errorf("CONNECT: %v, %s; want 405", err, text)
	}
	e := echoedBy(t, mustRun(t, "curl", "-q", "-sS", "-x", "http://"+d.plain, "http://a.example/x?y"))
	if e.Host != "a.example" || e.Path != "/x" || e.Query != "y" || e.Headers["Proxy-Connection"] != nil {
		t.Errorf("absolute form: the upstream was asked %+v", e)
	}
}

// Events come one by one: each is there before the next is sent.
func TestCurl_ServerSentEvents(t *testing.T) {
	for _, how := range [][]string{{"--http1.1"}, {"--http2"}} {
		next := make(chan bool)
		up := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for n := range 3 {
				fmt.Fprintf(w, "id: %d\ndata: one of three\n\n", n)
				http.NewResponseController(w).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		}))
		d := startProxy(t, "routes: [{match: {path: /*}, upstream: 'http://"+up+"', limits: [{key: global, rate: 1/1h}]}]\n")
		out := startProgram(t, "curl", append(how, "-q", "-sS", "-N", "--noproxy", "*", "--cacert", d.ca, "https://"+d.secure)...)
		for n := range 3 {
			await(t, fmt.Sprintf("event %d, %v", n, how), func() bool { return strings.Contains(out.String(), fmt.Sprintf("id: %d\ndata: one of three\n\n", n)) })
			next <- true
		}
	}
}
