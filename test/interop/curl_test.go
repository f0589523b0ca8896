package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
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
	const size = 24 << 20 // more than all buffers and windows
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
			await.Until(t, fmt.Sprintf("event %d, %v", n, how), func() bool { return strings.Contains(out.String(), fmt.Sprintf("id: %d\ndata: one of three\n\n", n)) })
			next <- true
		}
	}
}

// document is what nginx has to give: long, and worth compressing.
func document() []byte {
	return []byte(strings.Repeat("All work and no play makes Jack a dull boy.\n", 5000))
}

// nginx starts one whose server blocks are these, with %[1]s for a folder of its
// own that has text.txt, certificate and key, and returns that folder.
func nginx(t *testing.T, addr, blocks string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	issued(t, dir)
	write(t, filepath.Join(dir, "text.txt"), document())
	file := filepath.Join(dir, "nginx.conf")
	write(t, file, fmt.Appendf(nil, "daemon off; master_process off; pid %[1]s/pid;\nevents { worker_connections 256; }\n"+
		"http { access_log off; types { text/plain txt; } root %[1]s;\n"+
		"client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;\n"+
		blocks+"}\n", dir))
	startServer(t, exec.Command(program(t, "nginx"), "-p", dir, "-e", "stderr", "-c", file), addr)
	return dir
}

// startNginxBehind is an nginx with an ordinary server, and a Weir before it. Requests that
// a proxy has sent on, which it knows by their Via, it compresses only if told to.
func startNginxBehind(t *testing.T) (direct, through string) {
	direct = redistest.FreeAddr(t)
	nginx(t, direct, "server { listen "+direct+"; keepalive_requests 10;\n"+
		"location / { gzip on; gzip_types text/plain; gzip_min_length 1; gzip_proxied any; }\n"+
		"location /plain/ { alias %[1]s/; }\n"+
		"location = /connection { return 200 \"$connection $connection_requests\"; }\n"+
		"location = /teapot { return 418 \"short and stout\"; }\n"+
		"location = /moved { return 301 /plain/text.txt; } }\n")
	return direct, startProxy(t, "routes: [{match: {path: /*}, upstream: 'http://"+direct+"', limits: [{key: global, rate: 100000/1h}]}]\n").plain
}

// A rawAnswer is an answer, whole.
type rawAnswer struct {
	*http.Response
	body []byte
}

// ask asks without following or unpacking anything.
func ask(t *testing.T, method, url string, fields ...string) rawAnswer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	client := http.Transport{DisableCompression: true}
	defer client.CloseIdleConnections()
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return rawAnswer{res, body}
}

// What nginx answers arrives as it answers it: every byte, and every field but
// those that belong to one connection.
func TestNginx_AnswersPassAsTheyAre(t *testing.T) {
	direct, through := startNginxBehind(t)
	tag := ask(t, "GET", "http://"+direct+"/plain/text.txt").Header.Get("Etag")
	since := ask(t, "GET", "http://"+direct+"/plain/text.txt").Header.Get("Last-Modified")
	for _, c := range []struct {
		method, path string
		fields       []string
		status       int
	}{
		{"GET", "/plain/text.txt", nil, 200},
		{"HEAD", "/plain/text.txt", nil, 200},
		{"GET", "/text.txt", []string{"Accept-Encoding", "gzip"}, 200}, // in chunks: its length is not known before
		{"GET", "/text.txt", []string{"Accept-Encoding", "identity"}, 200},
		{"HEAD", "/text.txt", []string{"Accept-Encoding", "gzip"}, 200},
		{"GET", "/plain/text.txt", []string{"Range", "bytes=100-199"}, 206},
		{"GET", "/plain/text.txt", []string{"Range", "bytes=-5"}, 206},
		{"GET", "/plain/text.txt", []string{"Range", "bytes=999999999-"}, 416},
		{"GET", "/plain/text.txt", []string{"Range", "bytes=0-9", "If-Range", `"another"`}, 200},
		{"GET", "/plain/text.txt", []string{"If-None-Match", tag}, 304},
		{"GET", "/plain/text.txt", []string{"If-Modified-Since", since}, 304},
		{"GET", "/plain/text.txt", []string{"If-Match", `"another"`}, 412},
		{"GET", "/none", nil, 404},
		{"GET", "/teapot", nil, 418},
		{"GET", "/moved", nil, 301},
		{"POST", "/plain/text.txt", nil, 405},
	} {
		want, got := ask(t, c.method, "http://"+direct+c.path, c.fields...), ask(t, c.method, "http://"+through+c.path, c.fields...)
		what := fmt.Sprintf("%s %s %q", c.method, c.path, c.fields)
		if want.StatusCode != c.status || got.StatusCode != c.status {
			t.Errorf("%s: status %d, of nginx %d; want %d", what, got.StatusCode, want.StatusCode, c.status)
		}
		if !bytes.Equal(got.body, want.body) {
			t.Errorf("%s: %d bytes, of nginx %d, and not the same", what, len(got.body), len(want.body))
		}
		if got.ContentLength != want.ContentLength {
			t.Errorf("%s: length %d, of nginx %d", what, got.ContentLength, want.ContentLength)
		}
		for name, values := range want.Header {
			value := got.Header.Get(name)
			switch {
			case name == "Date" || name == "Connection":
			case name == "Location" && strings.HasSuffix(value, through+"/plain/text.txt"):
			case value != values[0]:
				t.Errorf("%s: %s is %q, of nginx %q", what, name, value, values[0])
			}
		}
	}
}

// Several ranges come as one multipart body, whose boundary nginx makes anew.
func TestNginx_SeveralRanges(t *testing.T) {
	_, through := startNginxBehind(t)
	got := ask(t, "GET", "http://"+through+"/plain/text.txt", "Range", "bytes=0-2,44-46")
	if got.StatusCode != 206 || !strings.HasPrefix(got.Header.Get("Content-Type"), "multipart/byteranges") || bytes.Count(got.body, []byte("\r\nAll\r\n")) != 2 {
		t.Errorf("answered %d, %v\n%s", got.StatusCode, got.Header, got.body)
	}
}

// Connections to nginx are used again, and when nginx has had enough of one,
// which it says after ten requests, no request is lost.
func TestNginx_ConnectionsAreUsedAgain(t *testing.T) {
	_, through := startNginxBehind(t)
	connections := map[string]int{}
	for range 100 {
		got := ask(t, "GET", "http://"+through+"/connection")
		number, requests, _ := strings.Cut(string(got.body), " ")
		n, err := strconv.Atoi(requests)
		if got.StatusCode != 200 || err != nil {
			t.Fatalf("answered %d, %q", got.StatusCode, got.body)
		}
		if connections[number]++; connections[number] != n {
			t.Errorf("connection %s: request %d of it is the %d. through Weir", number, n, connections[number])
		}
	}
	if len(connections) != 10 {
		t.Errorf("%d connections for 100 requests; want 10 of 10 each", len(connections))
	}
}

// nginx in TLS, by each of its protocols, trusted by its certificate alone.
func TestNginx_InTLS(t *testing.T) {
	for protocol, want := range map[string]string{"http1": "HTTP/1.1", "h2": "HTTP/2.0"} {
		addr := redistest.FreeAddr(t)
		dir := nginx(t, addr, "server { listen "+addr+" ssl http2; ssl_certificate %[1]s/localhost.pem; ssl_certificate_key %[1]s/localhost.key;\n"+
			"location = /protocol { return 200 $server_protocol; } }\n")
		d := startProxy(t, "upstreams: {nginx: {targets: ['https://"+addr+"'], protocol: "+protocol+", tls: {ca: "+filepath.Join(dir, "localhost.pem")+", server_name: localhost}}}\n"+
			"routes: [{match: {path: /*}, upstream: nginx}]\n")
		if got := ask(t, "GET", "http://"+d.plain+"/protocol"); got.StatusCode != 200 || string(got.body) != want {
			t.Errorf("%s: answered %d, %s; want %s", protocol, got.StatusCode, got.body, want)
		}
		if got := ask(t, "GET", "http://"+d.plain+"/text.txt"); !bytes.Equal(got.body, document()) {
			t.Errorf("%s: answered %d with %d bytes; want the text", protocol, got.StatusCode, len(got.body))
		}
	}
}

// With nginx before Weir, whose word counts there, each client is counted by its
// own address.
func TestNginx_InFront(t *testing.T) {
	d := startProxy(t, "client_ip: {trusted_proxies: [127.0.0.1/32]}\nroutes: [{match: {path: /*}, upstream: echo, limits: [{key: client_ip, rate: 1/1h}]}]\n")
	addr := redistest.FreeAddr(t)
	nginx(t, addr, "server { listen "+addr+"; location / { proxy_pass http://"+d.plain+"; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header X-Forwarded-For $http_x_client; } }\n")
	for _, c := range []struct {
		client string
		want   int
	}{{"192.0.2.1", 200}, {"192.0.2.2", 200}, {"192.0.2.1", 429}, {"6.6.6.6, 192.0.2.2", 429}} {
		if got := ask(t, "GET", "http://"+addr+"/", "X-Client", c.client); got.StatusCode != c.want {
			t.Errorf("%s is answered %d; want %d", c.client, got.StatusCode, c.want)
		}
	}
}
