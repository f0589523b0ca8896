// Package peers has real proxies ask Weir about their requests, with the examples of
// test/deploy/decide, and holds what each of them carries against the table of the reference.
package peers

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	weirtest.Main(m)
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

// longTimeout is longer than a busy machine needs. For that long Traefik waits, whatever is written.
const longTimeout = 30 * time.Second

// patient are the bounds of time of the examples, and longTimeout.
func patient() []string { return []string{" 50ms", " 30s", " 100ms", " 30s", " 0.05s", " 30s"} }

// start starts the proxy with its example, in front of an application, and returns its URL. Bounds are what is
// replaced of those in the example, and by what.
func (p *peer) start(t *testing.T, weir, application string, bounds ...string) string {
	t.Helper()
	dir, addr := t.TempDir(), redistest.FreeAddr(t)
	port := func(addr string) string { return "port_value: " + addr[strings.LastIndexByte(addr, ':')+1:] }
	own := strings.NewReplacer(append(bounds,
		"127.0.0.1:8000", addr, "127.0.0.1:8082", weir, "127.0.0.1:8083", redistest.FreeAddr(t), "127.0.0.1:3000", application,
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

// config is the configuration of both Weirs: for the fields of a peer, the address of Redis and the peer's routes.
const config = `
listen: {http: none, decide: {http: "127.0.0.1:0", %s, within: 30s, secret: 0123456789abcdef}}
admin: {http: "127.0.0.1:0"}
store: redis
redis: {addrs: [%q], timeout: 5s}
%s`

const httpRoutes = `
keys: {phone: header:X-Phone}
routes:
  - {name: sms, match: {path: /sms}, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h, on_store_failure: deny}]}
  - {name: many, match: {path: /many}, limits: [{name: all, key: global, rate: 50/1h}]}
  - {name: address, match: {path: /address}, limits: [{name: address, key: client_ip, rate: 1/1h, on_store_failure: allow}]}
  - {name: free, match: {path: /free}, limits: [{name: free, key: client_ip, rate: 1000/1h}]}
`

// envoyRoutes are the same for the descriptors of envoy.yaml.
const envoyRoutes = `
keys: {phone: "descriptor:phone", address: "descriptor:remote_address"}
routes:
  - {name: sms, match: {domain: edge, descriptor: {path: /sms, phone: "*"}}, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h, on_store_failure: deny}]}
  - {name: many, match: {domain: edge, descriptor: {path: /many, remote_address: "*"}}, limits: [{name: all, key: global, rate: 50/1h}]}
  - {name: address, match: {domain: edge, descriptor: {path: /address, remote_address: "*"}}, limits: [{name: address, key: address, rate: 1/1h, on_store_failure: allow}]}
  - {name: free, match: {domain: edge, descriptor: {path: /free, remote_address: "*"}}, limits: [{name: free, key: address, rate: 1000/1h}]}
`

const bodyRoute = `  - {name: body, match: {path: /body}, limits: [{name: body, key: "json:/phone", rate: 1/1h}]}
`

// A bench is one peer with an application, two Weirs, and a Redis.
type bench struct {
	*testing.T
	*peer
	app   *application
	redis *redistest.Server
	weirs [2]*weirtest.Process
	urls  [2]string // of the peer in front of each

	asks, reportsTo [2]string // where the Weirs answer the peer, and take the reports of the application
}

func newBench(t *testing.T, p *peer) *bench {
	t.Helper()
	b := &bench{T: t, peer: p, app: newApplication(t), redis: redistest.Start(t)}
	for i := range b.weirs {
		file := weirtest.Write(t, fmt.Sprintf(config, p.decide, b.redis.Addr, p.routes))
		b.weirs[i] = weirtest.Start(t, exec.Command("weir", "-c", file))
		serving := b.weirs[i].WaitForLog("serving", nil)
		b.reportsTo[i], b.asks[i] = serving.Text("decide"), serving.Text(p.listener)
		b.urls[i] = p.start(t, b.asks[i], strings.TrimPrefix(b.app.URL, "http://"), patient()...)
	}
	return b
}

// A reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// send sends a request to one of the peers with "Name: value" lines. A line that begins with a brace is the body.
func (b *bench) send(to int, path string, lines ...string) reply {
	b.Helper()
	r, err := http.NewRequest("GET", b.urls[to]+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, line := range lines {
		if line[0] == '{' {
			r.Method, r.Body, r.ContentLength = "POST", io.NopCloser(strings.NewReader(line)), int64(len(line))
			r.Header.Set("Content-Type", "application/json")
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return do(b.T, r)
}

func do(t *testing.T, r *http.Request) reply {
	t.Helper()
	began := time.Now()
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, string(text), time.Since(began)}
}

// wants sends a request and wants this status.
func (b *bench) wants(status, to int, path string, lines ...string) reply {
	b.Helper()
	got := b.send(to, path, lines...)
	if got.status != status {
		b.Errorf("%s %v: %d %v\n%s\nwant %d", path, lines, got.status, got.header, got.body, status)
	}
	return got
}

// reports reports an outcome to one of the Weirs and wants this status.
func (b *bench) reports(want, to int, handle string, status int) {
	b.Helper()
	r, err := http.NewRequest("POST", fmt.Sprintf("http://%s/decide/outcome?handle=%s&status=%d", b.reportsTo[to], url.QueryEscape(handle), status), nil)
	if err != nil {
		b.Fatal(err)
	}
	if got := do(b.T, r); got.status != want {
		b.Errorf("outcome %d of %s: %d %s; want %d", status, handle, got.status, got.body, want)
	}
}

// refusal returns the status that a client of the peer gets for a refusal with this one.
func (p *peer) refusal(status int) int { return cmp.Or(p.onlyStatus, status) }

// settled sends a request by send and, if the peer reports outcomes, waits until it has reported.
func (b *bench) settled(send func()) {
	b.Helper()
	before := b.outcomes()
	send()
	if b.peer.reports {
		await.Until(b.T, "report of the peer", func() bool { return b.outcomes() > before })
	}
}

// outcomes returns how many outcomes both Weirs have settled.
func (b *bench) outcomes() (n int) {
	b.Helper()
	for _, w := range b.weirs {
		r, err := http.NewRequest("GET", w.Admin+"/metrics", nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, after, found := strings.Cut(do(b.T, r).body, "\nweir_decide_outcomes_total{result=\"settled\"} "); found {
			line, _, _ := strings.Cut(after, "\n")
			settled, err := strconv.Atoi(line)
			if err != nil {
				b.Fatal(err)
			}
			n += settled
		}
	}
	return n
}

// A behaviour is what a peer is tried for.
type behaviour struct {
	name string
	try  func(b *bench) string // returns the entry of the table
}

// behaviours returns them in the order in which they are tried: the last ones stop Weir and Redis.
func behaviours() []behaviour {
	return []behaviour{
		{"allowed", allowed},
		{"refused", refused},
		{"RateLimit on successes", showsRest},
		{"key in a header", headerKey},
		{"key in the body", bodies},
		{"the client sends the key twice", keyTwice},
		{"the client forges fields of the proxy", forgedFields},
		{"200 requests at once over two Weirs, 50/1h", exact},
		{"refund, reported by the application", reportedByApplication},
		{"refund, reported by the proxy", reportedByPeer},
		{"handle forged or used twice", forgedHandle},
		{"Redis stopped", redisStopped},
		{"Weir hung, or too slow", weirHung},
		{"Weir stopped", weirStopped},
	}
}

// TestPeers holds what the peers show against the table of the reference. With -write it writes that table.
func TestPeers(t *testing.T) {
	chosen := strings.Fields(os.Getenv("WEIR_PEERS"))
	if len(chosen) == 0 {
		chosen = []string{"nginx"} // which ./test/run installs
	}
	said := readTable(t)
	var differences []string
	for _, p := range peers() {
		if !slices.Contains(chosen, p.name) {
			t.Logf("%s is left out: its entries in the table stay", p.name)
			continue
		}
		seen := map[string]string{}
		t.Run(p.name, func(t *testing.T) {
			b := newBench(t, &p)
			for _, one := range behaviours() {
				entry := ""
				if t.Run(one.name, func(t *testing.T) {
					b.T = t
					entry = one.try(b)
				}) {
					seen[one.name] = entry
				}
			}
		})
		differences = append(differences, said.compare(p.name, p.version(t), seen)...)
	}
	differences = append(differences, said.order()...)
	t.Log("\n" + said.String())
	if flag.Lookup("write").Value.String() == "true" && !t.Failed() {
		if err := said.write(); err != nil {
			t.Error(err)
		}
		return
	}
	for _, difference := range differences {
		t.Errorf("%s: %s; run test/interop/peers/run -write if that is right", reference(), difference)
	}
}
