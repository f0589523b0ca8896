//go:build http2clients

package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// uploaded and downloaded are sizes of bodies, many times a flow control window.
const uploaded, downloaded = 8 << 20, 16 << 20

// http2Client is the path of what http2/run has put in place.
func http2Client(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("WEIR_HTTP2_CLIENTS")
	if folder == "" {
		t.Fatal("WEIR_HTTP2_CLIENTS is not set: run ./test/interop/http2/run, which gets the clients first")
	}
	return filepath.Join(folder, name)
}

// startForClients is a Weir for the requests of the programs in http2/.
func startForClients(t *testing.T) testProxy {
	big := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, zeros{}, downloaded) // some clients leave
	}))
	d := startProxy(t, `upstreams: {big: {targets: ["http://`+big+`"]}}
routes:
  - {match: {path: /free}, upstream: echo}
  - {match: {path: /big}, upstream: big}
  - {match: {path: /limited}, upstream: echo, limits: [{key: global, rate: 1/1h}]}
`)
	curl(t, "--cacert", d.ca, "-o", os.DevNull, "https://"+d.secure+"/limited") // the only permit
	return d
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A client prints a JSON object with what its exchanges have come to: a hundred at once on
// one connection, an upload, one that is refused before it is sent, a download, and a
// request after fifty downloads that the client has left. What httpx and JDK 17 cannot do
// with net/http's server either is left out, and said in their programs.
func TestHTTP2Clients(t *testing.T) {
	for name, command := range map[string][]string{
		"httpx":         {http2Client(t, "python/bin/python"), "http2/client.py"},
		"undici":        {"node", http2Client(t, "node/client.mjs")},
		"java.net.http": {"java", "http2/Client.java"},
	} {
		t.Run(name, func(t *testing.T) {
			d := startForClients(t)
			out := clientSays(t, append(command, "https://"+d.secure, d.ca, fmt.Sprint(uploaded))...)
			var said map[string]string
			if err := json.Unmarshal(out, &said); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for what, want := range map[string]string{
				"many": "100", "upload": fmt.Sprintf("200 %d", uploaded), "early": "429 429",
				"download": fmt.Sprintf("200 %d", downloaded), "after aborts": "200",
			} {
				if name != "undici" && what == "after aborts" {
					continue // the bytes that others are sent after they have left use up their window for good
				}
				got := said[what]
				if what == "many" {
					var version string
					if got, version, _ = strings.Cut(got, " "); !strings.Contains(version, "2") {
						t.Errorf("the client spoke %q; want HTTP/2", version)
					}
				}
				if got != want {
					t.Errorf("%s: %q; want %q", what, said[what], want)
				}
			}
		})
	}
}

// nghttp2's own client, of the library in curl.
func TestHTTP2Clients_Nghttp(t *testing.T) {
	d := startForClients(t)
	nghttp, base, body := http2Client(t, "bin/nghttp"), "https://"+d.secure, sparseFile(t, uploaded)
	if got := strings.Count(string(clientSays(t, nghttp, "-nv", "-m100", base+"/free")), ":status: 200"); got != 100 {
		t.Errorf("%d of 100 requests have status 200", got)
	}
	if out := clientSays(t, nghttp, "-d", body, base+"/free"); !bytes.Contains(out, fmt.Appendf(nil, `"length": %d`, uploaded)) {
		t.Errorf("the upstream was sent something else than %d bytes: %.300s", uploaded, out)
	}
	if out := clientSays(t, nghttp, "-d", body, base+"/limited"); !bytes.Contains(out, []byte(`"status":429`)) {
		t.Errorf("an upload over the limit is answered %.300s; want 429", out)
	}
	if out := clientSays(t, nghttp, base+"/big"); len(out) != downloaded {
		t.Errorf("%d bytes received; want %d", len(out), downloaded)
	}
}

// h2spec has a case for each rule of RFC 9113 and RFC 7541 that a server can break.
func TestHTTP2Clients_H2spec(t *testing.T) {
	d := startForClients(t)
	host, port, err := net.SplitHostPort(d.secure)
	if err != nil {
		t.Fatal(err)
	}
	out := clientSays(t, http2Client(t, "bin/h2spec"), "--strict", "--tls", "--insecure", "--host", host, "--port", port, "--path", "/free")
	if !bytes.Contains(out, []byte("146 tests, 146 passed, 0 skipped, 0 failed")) {
		t.Errorf("%s", out)
	}
}

// clientSays is what a program prints. It must succeed.
func clientSays(t *testing.T, command ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var problems bytes.Buffer
	c.Stderr = &problems
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v, after %s\n%s", strings.Join(command, " "), err, out, problems.Bytes())
	}
	return out
}
