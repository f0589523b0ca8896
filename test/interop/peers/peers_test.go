package peers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// config is the configuration of both Weirs: for a dialect, with the address of Redis and the routes
// that only a peer that sends bodies can have.
const config = `
listen: {http: none, decide: {http: "127.0.0.1:0", dialect: %s, within: 30s, secret: 0123456789abcdef}}
admin: {http: "127.0.0.1:0"}
store: redis
redis: {addrs: [%q], timeout: 5s}
keys: {phone: header:X-Phone}
routes:
  - {name: sms, match: {path: /sms}, refund_on: {status: [5xx]}, limits: [{name: phone, key: phone, rate: 2/1h, on_store_failure: deny}]}
  - {name: many, match: {path: /many}, limits: [{name: all, key: global, rate: 50/1h}]}
  - {name: address, match: {path: /address}, limits: [{name: address, key: client_ip, rate: 1/1h, on_store_failure: allow}]}
  - {name: free, match: {path: /free}, limits: [{name: free, key: client_ip, rate: 1000/1h}]}
%s`

const bodyRoute = `  - {name: body, match: {path: /body}, limits: [{name: body, key: "json:/phone", rate: 1/1h}]}
`

// A bench is one peer with an application, two Weirs, and a Redis.
type bench struct {
	*testing.T
	*peer
	app   *application
	redis *redistest.Server
	weirs [2]*weirtest.Process
	asks  [2]string // where the Weirs answer peers
	urls  [2]string // of the peer in front of each
}

func newBench(t *testing.T, p *peer) *bench {
	t.Helper()
	b := &bench{T: t, peer: p, app: newApplication(t), redis: redistest.Start(t)}
	more := ""
	if p.sendsBody {
		more = bodyRoute
	}
	for i := range b.weirs {
		file := weirtest.Write(t, fmt.Sprintf(config, p.name, b.redis.Addr, more))
		b.weirs[i] = weirtest.Start(t, exec.Command("weir", "-c", file))
		serving := b.weirs[i].WaitForLog("serving", nil)
		b.asks[i] = serving.Text("decide")
		b.urls[i] = p.start(t, b.asks[i], strings.TrimPrefix(b.app.URL, "http://"))
	}
	return b
}

// A reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   string
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
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, string(text)}
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
	r, err := http.NewRequest("POST", fmt.Sprintf("http://%s/decide/outcome?handle=%s&status=%d", b.asks[to], url.QueryEscape(handle), status), nil)
	if err != nil {
		b.Fatal(err)
	}
	if got := do(b.T, r); got.status != want {
		b.Errorf("outcome %d of %s: %d %s; want %d", status, handle, got.status, got.body, want)
	}
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
		{"key in the body", bodies},
		{"client forges fields of the peer", forgedFields},
		{"50 of 200 over two Weirs", exact},
		{"refund, reported by the application", reportedByApplication},
		{"refund, reported by the peer", reportedByPeer},
		{"handle forged or used twice", forgedHandle},
		{"Redis stopped", redisStopped},
		{"Weir stopped", weirStopped},
	}
}

func TestPeers(t *testing.T) {
	chosen := strings.Fields(os.Getenv("WEIR_PEERS"))
	if len(chosen) == 0 {
		chosen = []string{"nginx"} // which ./test/run installs
	}
	table := [][]string{{"peer"}}
	for _, one := range behaviours() {
		table[0] = append(table[0], one.name)
	}
	for _, p := range peers() {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		row := []string{p.name}
		t.Run(p.name, func(t *testing.T) {
			b := newBench(t, &p)
			for _, one := range behaviours() {
				entry := "**no**"
				if t.Run(one.name, func(t *testing.T) {
					b.T = t
					entry = one.try(b)
				}) {
					row = append(row, entry)
				} else {
					row = append(row, "**no**")
				}
			}
		})
		table = append(table, row)
	}
	t.Log("\n" + transposed(table))
}

// transposed formats a table with a row for each behaviour.
func transposed(table [][]string) string {
	var s strings.Builder
	for i := range table[0] {
		s.WriteString("|")
		for _, row := range table {
			if i < len(row) {
				s.WriteString(" " + row[i])
			}
			s.WriteString(" |")
		}
		s.WriteString("\n")
		if i == 0 {
			s.WriteString(strings.Repeat("|---", len(table)) + "|\n")
		}
	}
	return s.String()
}

func allowed(b *bench) string {
	b.app.received()
	b.wants(200, 0, "/sms?a=b", "X-Phone: allowed", "X-Weir-Handle: of the client")
	got := b.app.received()
	handles := got.Values("X-Weir-Handle")
	if len(handles) != 1 || handles[0] == "of the client" || handles[0] == "" {
		b.Errorf("the application got the handles %q; want Weir's alone", handles)
	}
	return "200, the handle reaches the application"
}

func refused(b *bench) string {
	b.wants(200, 0, "/sms", "X-Phone: refused")
	b.wants(200, 1, "/sms", "X-Phone: refused")
	b.app.received()
	got := b.wants(429, 0, "/sms", "X-Phone: refused")
	if b.app.received() != nil {
		b.Error("the application got a request that was refused")
	}
	var problem struct{ Status int }
	if json.Unmarshal([]byte(got.body), &problem) != nil || problem.Status != 429 || got.header.Get("Content-Type") != "application/problem+json" {
		b.Errorf("refused with %q of the type %q; want a problem", got.body, got.header.Get("Content-Type"))
	}
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
		if len(got.header.Values(name)) != 1 {
			b.Errorf("refused with %v; want %s once", got.header, name)
		}
	}
	b.wants(400, 0, "/sms")
	return "429 with Retry-After, RateLimit and body"
}

func showsRest(b *bench) string {
	got := b.wants(200, 0, "/free")
	if has := got.header.Get("RateLimit") != ""; has != b.showsRest {
		b.Errorf("RateLimit on a success: %v; want %v", has, b.showsRest)
	}
	return yes(b.showsRest)
}

func bodies(b *bench) string {
	if b.sendsBody {
		b.wants(200, 0, "/body", `{"phone": "1"}`)
		b.wants(429, 1, "/body", `{"phone": "1"}`)
		b.wants(200, 1, "/body", `{"phone": "2"}`)
	}
	return yes(b.sendsBody)
}

func yes(it bool) string {
	if it {
		return "yes"
	}
	return "-"
}

func forgedFields(b *bench) string {
	b.wants(200, 0, "/address")
	for _, forged := range []string{
		"X-Forwarded-For: 198.51.100.7", "X-Original-URI: /free", "X-Forwarded-Uri: /free", "X-Original-Method: OPTIONS", "X-Forwarded-Method: OPTIONS",
		"X-Original-Host: other", "X-Forwarded-Host: other", "X-Forwarded-Proto: https", "X-Weir-Status: 200", "X-Weir-Token: 1", "X-Real-IP: 198.51.100.7",
	} {
		b.wants(429, 1, "/address", forged)
	}
	return "counts as before"
}

func exact(b *bench) string {
	var passed, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			switch got := b.send(i%2, "/many"); got.status {
			case 200:
				passed.Add(1)
			case 429:
				refused.Add(1)
			default:
				b.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	if passed.Load() != 50 || refused.Load() != 150 {
		b.Errorf("%d passed and %d were refused; want 50 and 150", passed.Load(), refused.Load())
	}
	return "exactly 50"
}

// handle sends a request that is allowed, and returns the handle that the application got.
func (b *bench) handle(phone string, lines ...string) string {
	b.Helper()
	b.app.received()
	b.send(0, "/sms", append(lines, "X-Phone: "+phone)...)
	got := b.app.received().Get("X-Weir-Handle")
	if got == "" {
		b.Fatal("the application got no handle")
	}
	return got
}

func reportedByApplication(b *bench) string {
	handle := b.handle("application")
	b.handle("application")
	b.wants(429, 1, "/sms", "X-Phone: application")
	if b.peer.reports {
		b.reports(409, 1, handle, 503) // the peer has reported 200
		return "the peer is first"
	}
	b.reports(204, 1, handle, 503)
	b.wants(200, 1, "/sms", "X-Phone: application")
	b.wants(429, 0, "/sms", "X-Phone: application")
	return "yes"
}

func reportedByPeer(b *bench) string {
	if !b.peer.reports {
		return "-"
	}
	for range 3 {
		b.wants(503, 0, "/sms", "X-Phone: peer", "X-Status: 503")
	}
	b.wants(200, 1, "/sms", "X-Phone: peer")
	b.wants(200, 1, "/sms", "X-Phone: peer")
	b.wants(429, 0, "/sms", "X-Phone: peer")
	return "yes"
}

func forgedHandle(b *bench) string {
	handle := b.handle("forged")
	second := b.handle("forged")
	if !b.peer.reports {
		b.reports(204, 0, handle, 200)
	}
	b.reports(409, 1, handle, 503)
	b.reports(403, 1, "A"+second[1:len(second)-2]+"AA", 503)
	b.reports(403, 0, strings.ToUpper(second), 503)
	b.wants(429, 0, "/sms", "X-Phone: forged", "X-Weir-Handle: "+second)
	return "changes nothing"
}

func redisStopped(b *bench) string {
	b.redis.Kill()
	await.Until(b.T, "refusal without Redis", func() bool { return b.send(0, "/sms", "X-Phone: without").status == 503 })
	await.Until(b.T, "the other route passes", func() bool { return b.send(0, "/address").status == 200 })
	return "on_store_failure: 503 or allowed"
}

func weirStopped(b *bench) string {
	b.weirs[0].Kill()
	await.Until(b.T, "answer without Weir", func() bool { return b.send(0, "/free").status == b.stopped })
	return fmt.Sprint(b.stopped)
}
