package interop

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

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
	direct = freeAddress(t)
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
		addr := freeAddress(t)
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
	addr := freeAddress(t)
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
