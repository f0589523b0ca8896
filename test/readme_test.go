package test

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/logtest"
)

// Each YAML block of each document is a whole file, and a good one: check says nothing
// but what applies where the file leaves it open.
func TestReadme_ConfigurationsAreGood(t *testing.T) {
	t.Parallel()
	notes := regexp.MustCompile(`(?m)^.*\(note\)\n`)
	for _, d := range docs(t) {
		for i, text := range d.blocks("yaml") {
			dir := t.TempDir()
			text = strings.NewReplacer("/var/lib/weir", dir, "/var/log/weir", dir).Replace(text) // as the packages make them
			write(t, filepath.Join(dir, "weir.yaml"), text)
			if err := os.Mkdir(filepath.Join(dir, "tls"), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "plans.txt"), "partner-1=partner\n")
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
		if len(d.curls()) == 0 || d.path == "proxy/docs/tasks.md" { // each of its curls has a configuration of its own
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
	text := doc(t, "proxy/docs/limits.md").text
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
