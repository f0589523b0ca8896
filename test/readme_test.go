package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
)

// Each YAML block of each document is a whole file, and a good one: check says nothing
// but what applies where the file leaves it open.
func TestReadme_ConfigurationsAreGood(t *testing.T) {
	t.Parallel()
	notes := regexp.MustCompile(`(?m)^.*\(note\)\n`)
	for _, d := range docs(t) {
		for i, text := range d.blocks("yaml") {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "weir.yaml"), text)
			if err := os.Mkdir(filepath.Join(dir, "tls"), 0o755); err != nil {
				t.Fatal(err)
			}
			writeCertificate(t, dir)
			for was, name := range map[string]string{"cert.pem": "weir.pem", "key.pem": "weir.key"} {
				if err := os.Rename(filepath.Join(dir, was), filepath.Join(dir, "tls", name)); err != nil {
					t.Fatal(err)
				}
			}
			if code, stdout, stderr := command(t, dir, "check", "weir.yaml"); code != 0 || notes.ReplaceAllString(stdout, "") != "weir.yaml: ok\n" {
				t.Errorf("%s: block %d is not good: %s%s\n%s", d.path, i, stdout, stderr, text)
			}
		}
	}
}

// What the README calls missing is an unknown field, and other features are not.
func TestReadme_KnowsWhatIsMissing(t *testing.T) {
	missing := strings.Join(strings.Fields(doc(t, "README.md").section(t, "Not built yet").text), " ")
	const routes = "upstreams: {demo: echo}\nroutes: [{match: {path: /}, upstream: demo, limits: [{rate: 1/1h, %s}]}]\n"
	limit := func(more string) string { return strings.Replace(routes, "%s", `key: "header:X", `+more, 1) }
	for words, config := range map[string]string{
		"ACME":                   "listen: {https: \":1\", tls: {acme: {domains: [a.example]}}}\n" + limit(""),
		"HTTP/3":                 "listen: {http3: true}\n" + limit(""),
		"Sentinel":               "redis: {mode: sentinel}\n" + limit(""),
		"Cluster":                "redis: {mode: cluster}\n" + limit(""),
		"Sentinel, Cluster, TLS": "redis: {tls: {}}\n" + limit(""),
		"cooldown":               limit("cooldown: [1m, 2m]"),
		"distinct values":        limit(`distinct: "header:Y"`),
		"waiting":                limit("wait: 1s"),
		"Redisson":               limit(`redisson_name: "a:{key}"`),
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "weir.yaml"), config)
		_, said, _ := command(t, dir, "check", "weir.yaml")
		refused, told := strings.Contains(said, "unknown field"), strings.Contains(missing, words)
		if refused != told {
			t.Errorf("%s: unknown: %v, missing in the README: %v\n%s%s", words, refused, told, config, said)
		}
	}
}

// Each curl of the documents is followed by the status that it gets from the
// example; those of the quick start with Redis are asked in a test of their own.
func TestReadme_CurlsGetWhatTheySay(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, d := range docs(t) {
		if d.path == "README.md" {
			d.text = strings.Replace(d.text, d.section(t, "Quick start with Redis").text, "", 1)
		}
		if len(d.curls()) == 0 {
			continue
		}
		dir := t.TempDir()
		write(t, filepath.Join(dir, "config.example.yaml"), example(t))
		w := startWith(t, dir)
		ran += d.ask(t, strings.NewReplacer("localhost:8080", w.URL, "localhost:9901", w.Admin))
	}
	if ran < 12 {
		t.Errorf("%d curl lines found, want at least 12", ran)
	}
}

// curls are the lines of its blocks of shell that call curl.
func (d document) curls() []string {
	var out []string
	for _, block := range d.blocks("sh") {
		for text := range strings.Lines(block) {
			if strings.HasPrefix(text, "curl ") {
				out = append(out, text)
			}
		}
	}
	return out
}

// ask sends what the curls of the document say to the hosts, and compares the
// status with what stands behind the #. It returns how many it sent.
func (d document) ask(t *testing.T, hosts *strings.Replacer) int {
	t.Helper()
	for _, text := range d.curls() {
		asked, want, _ := strings.Cut(text, "#")
		method, url, header := curl(t, hosts.Replace(asked))
		status, body := do(t, method, url, header)
		if strconv.Itoa(status) != strings.TrimSpace(want) {
			t.Errorf("%s: %sis answered %d %s", d.path, text, status, body)
		}
	}
	return len(d.curls())
}

// curl reads a command line as curl and a shell do, as far as the documents need.
func curl(t *testing.T, text string) (method, url string, header http.Header) {
	t.Helper()
	words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(text, -1)
	method, header = http.MethodGet, http.Header{}
	for i := 1; i < len(words); i++ {
		switch word := words[i]; word {
		case "-i", "-s":
		case "-X":
			i++
			method = words[i]
		case "-H":
			i++
			name, value, _ := strings.Cut(strings.Trim(words[i], "'"), ": ")
			header.Add(name, value)
		default:
			if url != "" || strings.HasPrefix(word, "-") {
				t.Fatalf("cannot read %q of %s", word, text)
			}
			url = strings.Trim(word, "'")
		}
	}
	return method, url, header
}

// The worked timeline is played against the store, row by row.
func TestReadme_TimelineIsTrue(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	store := limiter.NewMemory(limiter.MemoryOptions{Clock: func() time.Time { return now }})
	limit := &limiter.Limit{Name: "t", Rate: limiter.Rate{Count: 3, Window: time.Minute}}
	text := doc(t, "proxy/README.md").section(t, "Limits").text
	if !strings.Contains(text, "at 3/1m:") {
		t.Error("the timeline is not about 3/1m any more")
	}
	row := regexp.MustCompile(`(?m)^\| (\d+) s +\| (200|429)(?:, (\d+) s)? \| (\d+) \|`)
	rows := row.FindAllStringSubmatch(text, -1)
	if len(rows) < 5 {
		t.Fatalf("%d rows found", len(rows))
	}
	for _, r := range rows {
		number := func(i int) int64 {
			n, _ := strconv.ParseInt(r[i], 10, 64) // the pattern takes digits only, or nothing
			return n
		}
		now = begin.Add(time.Duration(number(1)) * time.Second)
		var d limiter.Decision
		if err := store.Take(t.Context(), []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("p"), Cost: 1}}, &d); err != nil {
			t.Fatal(err)
		}
		if d.Allowed != (r[2] == "200") || d.Wait != time.Duration(number(3))*time.Second || d.Outcomes[0].Remaining != number(4) {
			t.Errorf("row %q: the store says %+v", r[0], d)
		}
	}
}

// The refusal and the log line of the documents are what Weir says, but for what
// differs from one request to the next.
func TestReadme_RefusalAndLogLineAreReal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.example.yaml"), example(t))
	w := startWith(t, dir)
	w.statuses("13800138000", 1)
	_, header, body := exchange(t, http.MethodPost, w.URL+"/v1/sms/send", http.Header{"X-Phone": {"13800138000"}})

	told, err := http.ReadResponse(bufio.NewReader(strings.NewReader(blocks(t, "http")[0])), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name := range told.Header {
		if got, want := header.Get(name), told.Header.Get(name); name != "Retry-After" && got != want {
			t.Errorf("%s is %q, the documents say %q", name, got, want)
		}
	}
	want, err := io.ReadAll(told.Body)
	if err != nil {
		t.Fatal(err)
	}
	differs := regexp.MustCompile(`in \d+ s|"request_id":"\w+"`)
	if got, want := differs.ReplaceAllString(strings.TrimSpace(body), ""), differs.ReplaceAllString(strings.TrimSpace(string(want)), ""); got != want {
		t.Errorf("the body is\n%s\nthe documents say\n%s", got, want)
	}

	var shown logtest.Line
	if err := json.Unmarshal([]byte(blocks(t, "json")[0]), &shown); err != nil {
		t.Fatal(err)
	}
	said := w.WaitForLog("request", func(l logtest.Line) bool { return l.Text("status") == "429" })
	if got, want := slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(shown)); !slices.Equal(got, want) {
		t.Errorf("the line has the fields %v, the documents %v", got, want)
	}
}

// exercised is a weir to which everything has happened that a metric of the documents
// tells of.
func exercised(t *testing.T) *weir {
	t.Helper()
	server := redistest.Start(t)
	dir := t.TempDir()
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, "nonsense\r\n\r\n")
			c.Close()
		}
	}))
	t.Cleanup(bad.Close)
	write(t, filepath.Join(dir, "weir.yaml"), redisYAML(server.Addr)+`admin: {http: "127.0.0.1:0"}
listen: {http: "127.0.0.1:0", https: "127.0.0.1:0", tls: {cert: cert.pem, key: key.pem}, decide: {http: "127.0.0.1:0", dialect: haproxy}}
traces: {endpoint: "http://127.0.0.1:1"}
upstreams: {demo: echo, gone: {targets: ["http://127.0.0.1:1", "http://127.0.0.1:2"], retries: 1}}
lists: {friends: {key: "header:X-Phone", values: [friend], action: bypass}}
routes:
  - {match: {path: /banned}, upstream: demo, lists: [friends], limits: [{key: "header:X-Phone", rate: 1/1h, penalty: {ban: 1h, after: 1}}]}
  - {match: {path: /once}, upstream: demo, idempotency: {header: Idempotency-Key}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {match: {path: /v1/sms/send}, upstream: demo, new_keys: 100/1m, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: again, match: {path: /again}, upstream: demo, limits: [{key: "header:X-Phone", cooldown: [1h], reset_on: {route: right}}]}
  - {name: unused, match: {path: /unused}, upstream: demo, limits: [{key: client_ip, rate: 1000/1h, return_on: {route: right, key: "header:X-Phone"}}, {name: few, key: client_ip, rate: 1/1h, return_on: {route: right, key: "header:X-Phone"}, mode: shadow}]}
  - {name: right, match: {path: /right}, upstream: demo, limits: [{key: "header:X-Phone", rate: 9/1h, plans: {pro: 90/1h}}]}
  - {match: {path: /wait}, upstream: demo, limits: [{key: "header:X-Phone", rate: 1/500ms, wait: 20s}]}
  - {match: {path: /gone}, upstream: gone, refund_on: {errors: [connect]}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: paid, match: {path: /paid}, upstream: demo, limits: [{name: spend, key: global, budget: [9/1h], price: sms, on_store_failure: deny}]}
  - {match: {path: /bad}, upstream: `+bad.URL+`}
prices: {sms: {rows: ["*,*,0.01"], unit: EUR, key: {from: "header:X-Number", normalize: e164, on_missing: skip}}}
`)
	writeCertificate(t, dir)
	w := startWith(t, dir, "-c", "weir.yaml")
	w.reload()
	server.Kill()
	w.statuses("outage", 2)
	server.Restart()
	// What is counted if a request comes soon enough, or Redis is there again, is asked for
	// until it was.
	round := 0
	await.Until(t, "everything has happened", func() bool {
		round++
		w.exercise(fmt.Sprint("p", round))
		return len(uncounted(t, w)) == 0
	}, lazily(func() string { return fmt.Sprint(uncounted(t, w)) }))
	return w
}

// lazily is text that is made when it is needed.
type lazily func() string

func (l lazily) String() string { return l() }

// exercise does for a phone what metrics tell of.
func (w *weir) exercise(phone string) {
	w.t.Helper()
	post := func(path, phone string) {
		do(w.t, http.MethodPost, w.URL+path, http.Header{"X-Phone": {phone}, "Idempotency-Key": {phone}})
	}
	w.statuses(phone, 2)
	post("/gone", phone)
	post("/bad", phone)
	post("/banned", "friend")
	for range 3 {
		post("/banned", phone)
	}
	for range 2 {
		post("/once", phone)
	}
	post("/unused", phone)
	post("/paid", phone)
	post("/right", phone)
	for range 2 {
		post("/wait", phone)
	}
	asked := "http://" + w.WaitForLog("serving", nil).Text("decide") + "/decide"
	do(w.t, http.MethodGet, asked, http.Header{
		"X-Original-Method": {"POST"}, "X-Original-Uri": {"/right"}, "X-Original-Host": {"localhost"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Phone": {phone},
	})
	do(w.t, http.MethodPost, asked+"/outcome?handle=forged&status=200", nil)
}

// uncounted are the metrics of the documents that weir has not got.
func uncounted(t *testing.T, w *weir) (names []string) {
	t.Helper()
	there := w.metrics()
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllStringSubmatch(prose(t), -1) {
		if !strings.Contains(there, "# TYPE "+m[1]+" ") {
			names = append(names, m[1])
		}
	}
	return names
}

// Every metric that Weir has is in the documents' table with its labels, and the other
// way round.
func TestReadme_NamesEveryMetric(t *testing.T) {
	t.Parallel()
	w := exercised(t)
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)").FindAllStringSubmatch(prose(t), -1) {
		told = append(told, m[1])
	}
	if len(told) < 8 {
		t.Fatalf("the documents tell of %v only", told)
	}
	seen := regexp.MustCompile(`(?m)^# TYPE (weir_[a-z_]+) `).FindAllStringSubmatch(w.metrics(), -1)
	for _, m := range seen {
		if !strings.Contains(strings.Join(told, " ")+" ", m[1]+" ") {
			t.Errorf("%s is in no document", m[1])
		}
	}
	labels := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)(?:\\{([a-z,]+)\\})?` \\|").FindAllStringSubmatch(prose(t), -1) {
		names := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		slices.Sort(names)
		labels[m[1]] = strings.Join(names, ",")
	}
	for _, m := range regexp.MustCompile(`(?m)^(weir_[a-z_]+?)(?:_bucket|_sum|_count)?(\{.*\})? `).FindAllStringSubmatch(w.metrics(), -1) {
		var names []string
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if label[1] != "le" {
				names = append(names, label[1])
			}
		}
		slices.Sort(names)
		if got, want := strings.Join(names, ","), labels[m[1]]; got != want {
			t.Errorf("%s has the labels %q, the documents say %q", m[1], got, want)
		}
	}
}
