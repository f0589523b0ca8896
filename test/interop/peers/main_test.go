// Package peers has real proxies ask Weir about their requests, with the examples of
// test/deploy/decide, and holds what each of them carries against the table of the reference.
package peers

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

func TestMain(m *testing.M) {
	flag.Bool("write", false, "write the table of the reference")
	flag.Parse()
	dir, err := os.MkdirTemp("", "weir-peers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if _, err := weirtest.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err) // the tests that need it fail
	}
	os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A peer is a proxy that asks.
type peer struct {
	name                          string
	tellVersion                   string                          // the argument that has the program tell its version
	files                         []string                        // of test/deploy/decide; the program reads the first
	args                          func(dir, file string) []string // of the program
	fix                           func(dir, text string) string   // what an example leaves to the system, such as folders
	decide                        string                          // the fields of listen.decide, without those that all have
	listener                      string                          // of Weir, on which the peer asks
	routes                        string                          // of Weir, with their keys
	onlyStatus                    int                             // of all refusals; 0 if each has its own
	unready                       int                             // what it answers until it has read its configuration; 0 if it listens only then
	stopped, hung                 int                             // what clients get while Weir is stopped, or accepts and says nothing, according to the example
	bound                         time.Duration                   // for how long it waits for Weir, according to the example
	showsRest, sendsBody, reports carried                         // it sends RateLimit on successes, the body, the outcome
}

// carried says whether a peer carries something.
type carried bool

// String returns the entry of the table.
func (c carried) String() string {
	if c {
		return "yes"
	}
	return "no"
}

// peers returns the proxies that can be had as packages.
func peers() []peer {
	same := func(_, text string) string { return text }
	return []peer{
		{
			name: "nginx", tellVersion: "-v", bound: 50 * time.Millisecond, decide: "dialect: nginx", listener: "decide", routes: httpRoutes, files: []string{"nginx.conf"}, stopped: 500, hung: 500, showsRest: true,
			args: func(dir, file string) []string {
				return []string{"-p", dir, "-e", "stderr", "-c", file, "-g", "daemon off; master_process off; pid " + dir + "/pid;"}
			},
			fix: func(dir, text string) string {
				folders := ""
				for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
					folders += name + "_temp_path " + dir + "/" + name + "; "
				}
				return strings.Replace(text, "http {", "http { access_log off; "+folders, 1)
			},
		},
		{
			name: "haproxy", tellVersion: "-v", bound: 100 * time.Millisecond, decide: "dialect: haproxy", listener: "decide", routes: httpRoutes + bodyRoute, hung: 504, files: []string{"haproxy.cfg", "haproxy.lua"}, stopped: 503, showsRest: true, sendsBody: true, reports: true, fix: same,
			args: func(_, file string) []string { return []string{"-db", "-f", file} },
		},
		{
			name: "caddy", tellVersion: "version", bound: 50 * time.Millisecond, decide: "dialect: caddy", listener: "decide", routes: httpRoutes, files: []string{"Caddyfile"}, stopped: 502, hung: 504, fix: same,
			args: func(_, file string) []string { return []string{"run", "--config", file, "--adapter", "caddyfile"} },
		},
		{
			name: "traefik", tellVersion: "version", bound: longTimeout, decide: "dialect: traefik", listener: "decide", routes: httpRoutes + bodyRoute, files: []string{"traefik-dynamic.yaml"}, stopped: 500, hung: 500, sendsBody: true, unready: 404,
			args: func(_, file string) []string {
				return []string{"--providers.file.filename=" + file, "--entryPoints.clients.address=127.0.0.1:8000", "--global.checkNewVersion=false", "--log.level=WARN"}
			},
			fix: func(_, text string) string {
				return strings.NewReplacer("# forwardBody", "forwardBody", "# maxBodySize", "maxBodySize").Replace(text)
			},
		},
		{
			// The other listener is for the application, which reports outcomes over HTTP.
			name: "envoy", tellVersion: "--version", bound: 50 * time.Millisecond, decide: `dialect: haproxy, grpc: "127.0.0.1:0"`, listener: "decide_grpc", routes: envoyRoutes, onlyStatus: 429,
			files: []string{"envoy.yaml"}, stopped: 500, hung: 500, showsRest: true, reports: true, fix: same,
			args: func(_, file string) []string {
				return []string{"-c", file, "--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"}
			},
		},
	}
}

// find returns the path of a program: of PATH, or as test/install left it.
func find(name string) (string, error) {
	cached, err := filepath.Abs(filepath.Join("..", "..", ".cache", "bin", name))
	if err != nil {
		return "", err
	}
	for _, candidate := range []string{name, cached, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not here: run test/install %s", name, name)
}

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.FreePort(t)))
}

// longTimeout is longer than a busy machine needs. For that long Traefik waits, whatever is written.
const longTimeout = 30 * time.Second

// patient are the bounds of time of the examples, and longTimeout.
func patient() []string { return []string{" 50ms", " 30s", " 100ms", " 30s", " 0.05s", " 30s"} }

// start starts the proxy with its example, in front of an application, and returns its URL. Bounds are what is
// replaced of those in the example, and by what.
func (p *peer) start(t *testing.T, weir, application string, bounds ...string) string {
	t.Helper()
	dir, addr := t.TempDir(), freeAddress(t)
	port := func(addr string) string { return "port_value: " + addr[strings.LastIndexByte(addr, ':')+1:] }
	own := strings.NewReplacer(append(bounds,
		"127.0.0.1:8000", addr, "127.0.0.1:8082", weir, "127.0.0.1:8083", freeAddress(t), "127.0.0.1:3000", application,
		"port_value: 8000", port(addr), "port_value: 8081", port(weir), "port_value: 3000", port(application))...)
	for _, name := range p.files {
		text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "decide", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(p.fix(dir, own.Replace(string(text)))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program, err := find(p.name)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	for _, arg := range p.args(dir, filepath.Join(dir, p.files[0])) {
		c.Args = append(c.Args, own.Replace(arg))
	}
	c.Dir, c.Env = dir, append(os.Environ(), "HOME="+dir)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Signal(syscall.SIGTERM)
		ended := time.AfterFunc(await.Limit, func() { c.Process.Kill() })
		c.Wait()
		ended.Stop()
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s said:\n%s", p.name, text)
		}
	})
	await.Until(t, p.name+" on "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	if p.unready != 0 {
		await.Until(t, "configuration of "+p.name, func() bool {
			r, err := http.NewRequest("GET", "http://"+addr+"/free", nil)
			return err == nil && do(t, r).status != p.unready
		})
	}
	return "http://" + addr
}

// An application answers with the status in X-Status and the X-Tokens-Used in X-Use, and remembers the header of the last request.
type application struct {
	*httptest.Server
	left chan struct{} // a client of /forever has left

	mu   sync.Mutex // guards what follows
	last http.Header
}

func newApplication(t *testing.T) *application {
	t.Helper()
	a := &application{left: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/decide") {
			t.Errorf("the application was asked in place of Weir: %v", r.Header)
		}
		a.mu.Lock()
		a.last = r.Header.Clone()
		a.mu.Unlock()
		if use := r.Header.Values("X-Use"); len(use) > 0 {
			w.Header()["X-Tokens-Used"] = use
		}
		if r.URL.Path == "/forever" {
			<-r.Context().Done()
			a.left <- struct{}{}
		}
		if status, err := strconv.Atoi(r.Header.Get("X-Status")); err == nil {
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

// received returns the header of the last request, and forgets it; nil if there was none.
func (a *application) received() http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.last
	a.last = nil
	return last
}
