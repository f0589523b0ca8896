package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
)

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
	b.wants(b.refusal(400), 0, "/sms")
	return "429 with Retry-After, RateLimit and body"
}

func showsRest(b *bench) string {
	got := b.wants(200, 0, "/free")
	if has := carried(got.header.Get("RateLimit") != ""); has != b.showsRest {
		b.Errorf("RateLimit on a success: %v; want %v", has, b.showsRest)
	}
	return b.showsRest.String()
}

func headerKey(b *bench) string {
	b.wants(200, 0, "/sms", "X-Phone: one")
	b.wants(200, 1, "/sms", "X-Phone: one")
	b.wants(429, 1, "/sms", "X-Phone: one")
	b.wants(200, 1, "/sms", "X-Phone: another")
	return "yes"
}

func bodies(b *bench) string {
	if b.sendsBody {
		b.wants(200, 0, "/body", `{"phone": "1"}`)
		b.wants(429, 1, "/body", `{"phone": "1"}`)
		b.wants(200, 1, "/body", `{"phone": "2"}`)
	}
	return b.sendsBody.String()
}

func keyTwice(b *bench) string {
	b.wants(200, 0, "/sms", "X-Phone: twice")
	b.wants(200, 0, "/sms", "X-Phone: twice")
	for _, others := range []string{"1", "2"} {
		b.wants(b.refusal(400), 0, "/sms", "X-Phone: twice", "X-Phone: other"+others)
		b.wants(b.refusal(400), 0, "/sms", "X-Phone: another"+others, "X-Phone: twice")
	}
	return fmt.Sprint(b.refusal(400))
}

func forgedFields(b *bench) string {
	b.wants(200, 0, "/address")
	for _, forged := range []string{
		"X-Forwarded-For: 198.51.100.7", "X-Original-URI: /free", "X-Forwarded-Uri: /free", "X-Original-Method: OPTIONS", "X-Forwarded-Method: OPTIONS",
		"X-Original-Host: other", "X-Forwarded-Host: other", "X-Forwarded-Proto: https", "X-Weir-Status: 200", "X-Weir-Token: 1", "X-Real-IP: 198.51.100.7",
		"X-Envoy-External-Address: 198.51.100.7", "X-Envoy-Original-Path: /free", "X-Envoy-Internal: true",
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
	b.settled(func() { b.send(0, "/sms", append(lines, "X-Phone: "+phone)...) })
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
		return "the proxy is first"
	}
	b.reports(204, 1, handle, 503)
	b.wants(200, 1, "/sms", "X-Phone: application")
	b.wants(429, 0, "/sms", "X-Phone: application")
	return "yes"
}

func reportedByPeer(b *bench) string {
	if !b.peer.reports {
		return "no"
	}
	for range 3 {
		b.settled(func() { b.wants(503, 0, "/sms", "X-Phone: peer", "X-Status: 503") })
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
	await.Until(b.T, "refusal without Redis", func() bool { return b.send(0, "/sms", "X-Phone: without").status == b.refusal(503) })
	await.Until(b.T, "the other route passes", func() bool { return b.send(0, "/address").status == 200 })
	return fmt.Sprintf("`on_store_failure`: %d or allowed", b.refusal(503))
}

// weirHung keeps the bounds of time of the example. A peer that checks Weir's health may have found it down.
func weirHung(b *bench) string {
	hasty := b.peer.start(b.T, b.asks[1], strings.TrimPrefix(b.app.URL, "http://"))
	b.weirs[1].Signal(syscall.SIGSTOP)
	defer b.weirs[1].Signal(syscall.SIGCONT)
	r, err := http.NewRequest("GET", hasty+"/free", nil)
	if err != nil {
		b.Fatal(err)
	}
	got := do(b.T, r)
	if got.status != b.hung && got.status != b.stopped {
		b.Errorf("%d %s while Weir is hung; want %d", got.status, got.body, b.hung)
	}
	// Timers of some peers are of whole milliseconds, and end early by a part of one.
	if got.status == b.hung && (got.took < b.bound*9/10 || got.took > b.bound+longTimeout) {
		b.Errorf("%d after %v while Weir is hung; want it after %v", got.status, got.took, b.bound)
	}
	return fmt.Sprintf("%d after its timeout of %v", b.hung, b.bound)
}

// weirStopped has a peer that would wait for longTimeout: it does not.
func weirStopped(b *bench) string {
	b.weirs[0].Kill()
	await.Until(b.T, "answer without Weir", func() bool {
		got := b.send(0, "/free")
		if got.took >= longTimeout {
			b.Errorf("%d after %v without Weir; want it at once", got.status, got.took)
		}
		return got.status == b.stopped
	})
	return fmt.Sprintf("%d at once", b.stopped)
}

// settleRoutes are those of envoy-settle.yaml: each request takes 1000 tokens.
const settleRoutes = `
keys: {tenant: "descriptor:tenant"}
routes:
  - {name: tokens, match: {domain: edge, descriptor: {tenant: "*"}}, refund_on: {status: [5xx]}, limits: [{name: tokens, key: tenant, rate: 3000/1h, algorithm: sliding_log}]}
`

// remainingPattern finds what remains in a RateLimit field.
var remainingPattern = regexp.MustCompile(`;r=(\d+)`)

// TestSettle_EnvoyTellsWhatARequestHasCost asks one Weir and reads from the other what has remained.
func TestSettle_EnvoyTellsWhatARequestHasCost(t *testing.T) {
	if !slices.Contains(strings.Fields(os.Getenv("WEIR_PEERS")), "envoy") {
		t.Log("envoy is left out")
		return
	}
	all := peers()
	p := all[slices.IndexFunc(all, func(p peer) bool { return p.name == "envoy" })]
	p.files, p.routes = []string{"envoy-settle.yaml"}, settleRoutes
	b := newBench(t, &p)
	for _, test := range []struct {
		tenant   string
		response []string
		remains  string // of 3000, after this request and one that takes 1000; "" if that is refused
	}{
		{"less", []string{"X-Use: 123"}, "1877"},
		{"nothing", []string{"X-Use: 0"}, "2000"},
		{"as reserved", []string{"X-Use: 1000"}, "1000"},
		{"more", []string{"X-Use: 1500"}, "500"},
		{"more than there is", []string{"X-Use: 5000"}, ""},
		{"failed", []string{"X-Status: 503"}, "2000"},
		{"failed with a cost", []string{"X-Status: 503", "X-Use: 10"}, "1990"},
	} {
		b.settled(func() { b.send(0, "/", append(test.response, "X-Tenant: "+test.tenant)...) })
		b.remains(test.tenant, test.remains)
	}
	for _, kept := range [][]string{{}, {"X-Use: many"}, {"X-Use: -5"}, {"X-Status: 404"}} {
		tenant := "kept " + strings.Join(kept, "")
		b.wants(map[bool]int{true: 404, false: 200}[slices.Contains(kept, "X-Status: 404")], 0, "/", append(kept, "X-Tenant: "+tenant)...)
		b.settled(func() { b.send(0, "/", "X-Tenant: next", "X-Use: 0") }) // Envoy would have reported before
		b.remains(tenant, "1000")
	}
	b.clientLeaves("left")
	b.settled(func() { b.send(0, "/", "X-Tenant: next", "X-Use: 0") })
	b.remains("left", "1000")
	// A client cannot say what its request has cost, nor settle that of others.
	b.app.received()
	b.send(0, "/", "X-Tenant: forging", "X-Tokens-Used: 0", "X-Weir-Handle: of the client")
	b.settled(func() { b.send(0, "/", "X-Tenant: next", "X-Use: 0") })
	b.remains("forging", "1000")
}

// remains sends a request to the other Weir and compares what is left of the tenant's tokens.
func (b *bench) remains(tenant, want string) {
	b.Helper()
	if want == "" {
		b.wants(429, 1, "/", "X-Tenant: "+tenant)
		return
	}
	found := remainingPattern.FindStringSubmatch(b.wants(200, 1, "/", "X-Tenant: "+tenant).header.Get("RateLimit"))
	if found == nil || found[1] != want {
		b.Errorf("%s: %v remains; want %s", tenant, found, want)
	}
}

// clientLeaves sends a request that is never answered, and leaves when the application has it.
func (b *bench) clientLeaves(tenant string) {
	b.Helper()
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "GET", b.urls[0]+"/forever", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("X-Tenant", tenant)
	b.app.received()
	ended := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(r)
		ended <- err
	}()
	await.Until(b.T, "the request at the application", func() bool { return b.app.received() != nil })
	leave()
	if err := <-ended; err == nil {
		b.Error("a request to /forever was answered")
	}
	await.Value(b.T, b.app.left, "the end of the request at the application")
}

// A table is the one of the reference: a row for each behaviour, a column for each peer.
type table struct {
	text   []string   // of the reference, by line
	at     int        // the line of the first row
	heads  []string   // "behaviour" and the peers with their versions
	rows   [][]string // the entries behind the behaviour, in full
	lasted int        // lines of the table
}

// headOfTable begins the table in the reference.
const headOfTable = "| behaviour |"

// sameAsLeft stands for a long entry that is the one on its left.
const sameAsLeft = "the same"

func reference() string { return filepath.Join("..", "..", "..", "proxy", "docs", "decisions.md") }

// readTable reads the table of the reference.
func readTable(t *testing.T) *table {
	t.Helper()
	text, err := os.ReadFile(reference())
	if err != nil {
		t.Fatal(err)
	}
	made := &table{text: strings.Split(string(text), "\n")}
	made.at = slices.IndexFunc(made.text, func(line string) bool { return strings.HasPrefix(line, headOfTable) })
	if made.at < 0 {
		t.Fatalf("%s has no line that begins with %q", reference(), headOfTable)
	}
	for _, line := range made.text[made.at:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			if cells[i] = strings.TrimSpace(cells[i]); cells[i] == sameAsLeft {
				cells[i] = cells[i-1]
			}
		}
		switch made.lasted++; made.lasted {
		case 1:
			made.heads = cells
		case 2: // the line of dashes
		default:
			made.rows = append(made.rows, cells)
		}
	}
	return made
}

// compare puts what a peer has shown into the table, and returns what the table said otherwise. What
// was not tried keeps its entry.
func (t *table) compare(peer, version string, seen map[string]string) (differences []string) {
	column := slices.IndexFunc(t.heads, func(head string) bool { return strings.HasPrefix(strings.ToLower(head), peer) })
	if column < 0 {
		return []string{"the table has no column for " + peer}
	}
	if name, said, _ := strings.Cut(t.heads[column], " "); version != "" && version != said {
		t.heads[column] = name + " " + version
	}
	for _, b := range behaviours() {
		entry := seen[b.name]
		row := slices.IndexFunc(t.rows, func(row []string) bool { return row[0] == b.name })
		switch {
		case row < 0:
			row = len(t.rows)
			t.rows = append(t.rows, slices.Insert(make([]string, len(t.heads)-1), 0, b.name))
			fallthrough
		case entry != "" && t.rows[row][column] != entry:
			differences = append(differences, fmt.Sprintf("%s, %q: the table says %q; the run saw %q", peer, b.name, t.rows[row][column], entry))
			t.rows[row][column] = entry
		}
	}
	return differences
}

// order gives the rows the order of the behaviours, and returns those that nothing tries.
func (t *table) order() (untried []string) {
	var ordered [][]string
	for _, b := range behaviours() {
		if i := slices.IndexFunc(t.rows, func(row []string) bool { return row[0] == b.name }); i >= 0 {
			ordered = append(ordered, t.rows[i])
		}
	}
	for _, row := range t.rows {
		if !slices.ContainsFunc(behaviours(), func(b behaviour) bool { return b.name == row[0] }) {
			untried = append(untried, fmt.Sprintf("%q: no behaviour of this name is tried", row[0]))
		}
	}
	t.rows = ordered
	return untried
}

// String formats the table. Long entries are written once.
func (t *table) String() string {
	var s strings.Builder
	s.WriteString("| " + strings.Join(t.heads, " | ") + " |\n" + strings.Repeat("|---", len(t.heads)) + "|\n")
	for _, row := range t.rows {
		for i, entry := range row {
			if i > 1 && entry == row[i-1] && len(entry) > len("exactly 50") {
				entry = sameAsLeft
			}
			s.WriteString("| " + entry + " ")
		}
		s.WriteString("|\n")
	}
	return s.String()
}

// write writes the table into the reference.
func (t *table) write() error {
	lines := slices.Replace(t.text, t.at, t.at+t.lasted, strings.TrimSuffix(t.String(), "\n"))
	return os.WriteFile(reference(), []byte(strings.Join(lines, "\n")), 0o600)
}

// TestTable_NamesTheEntryThatIsUntrue runs without any peer.
func TestTable_NamesTheEntryThatIsUntrue(t *testing.T) {
	said := readTable(t)
	if got := strings.Join(slices.Replace(slices.Clone(said.text), said.at, said.at+said.lasted, strings.TrimSuffix(said.String(), "\n")), "\n"); got != strings.Join(said.text, "\n") {
		t.Errorf("the table is not as -write would write it:\n%s", said)
	}
	seen := map[string]string{"allowed": "never", "key in the body": "yes"}
	got := said.compare("traefik", "", seen)
	if len(got) != 1 || !strings.Contains(got[0], `traefik, "allowed"`) || !strings.Contains(got[0], `"never"`) {
		t.Errorf("differences %q; want that of traefik, allowed", got)
	}
	if got := said.order(); len(got) > 0 {
		t.Error(got)
	}
}

// versionPattern finds a version in what a program says of itself.
var versionPattern = regexp.MustCompile(`(?:^|[ /v])(\d+\.\d+)\.\d+`)

// version returns the version of the peer's program without its last number; "" if the program does not tell.
func (p *peer) version(t *testing.T) string {
	t.Helper()
	program, err := find(p.name)
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(program, p.tellVersion).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v", program, p.tellVersion, err)
	}
	if found := versionPattern.FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return ""
}
