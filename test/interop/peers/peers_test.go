package peers

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

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
