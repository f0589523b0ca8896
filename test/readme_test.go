package test

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/logtest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/weirtest"
)

// writeNamed writes into dir what configurations of the documents name: a certificate and a list of plans.
func writeNamed(t *testing.T, dir string) {
	t.Helper()
	cert, key := certtest.New(t, "example.com", "127.0.0.1")
	write(t, filepath.Join(dir, "tls", "weir.pem"), cert)
	write(t, filepath.Join(dir, "tls", "weir.key"), key)
	write(t, filepath.Join(dir, "plans.txt"), "partner-1=partner\n")
}

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
			writeNamed(t, dir)
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
		own := []string{"proxy/docs/tasks.md", "proxy/docs/budgets.md"} // their curls have configurations of their own
		if len(d.commands("curl")) == 0 || slices.Contains(own, d.path) {
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

// commands are the lines of its blocks of shell that call one of the programs.
func (d document) commands(programs ...string) []string {
	var out []string
	for _, block := range d.blocks("sh") {
		for text := range strings.Lines(block) {
			if program, _, _ := strings.Cut(text, " "); slices.Contains(programs, program) {
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
	for _, text := range d.commands("curl") {
		asked, want, _ := strings.Cut(text, "#")
		method, url, header := curl(t, hosts.Replace(asked))
		status, body := do(t, method, url, header)
		if strconv.Itoa(status) != strings.TrimSpace(want) {
			t.Errorf("%s: %sis answered %d %s", d.path, text, status, body)
		}
	}
	return len(d.commands("curl"))
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
		check(t, store.Take(t.Context(), []limiter.Claim{{Limit: limit, Key: limiter.KeyOf("p"), Cost: 1}}, &d))
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
	check(t, err)
	for name := range told.Header {
		if got, want := header.Get(name), told.Header.Get(name); name != "Retry-After" && got != want {
			t.Errorf("%s is %q, the documents say %q", name, got, want)
		}
	}
	want, err := io.ReadAll(told.Body)
	check(t, err)
	differs := regexp.MustCompile(`in \d+ s|"request_id":"\w+"`)
	if got, want := differs.ReplaceAllString(strings.TrimSpace(body), ""), differs.ReplaceAllString(strings.TrimSpace(string(want)), ""); got != want {
		t.Errorf("the body is\n%s\nthe documents say\n%s", got, want)
	}

	var shown logtest.Line
	check(t, json.Unmarshal([]byte(blocks(t, "json")[0]), &shown))
	said := w.WaitForLog("request", func(l logtest.Line) bool { return l.Text("status") == "429" })
	if got, want := slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(shown)); !slices.Equal(got, want) {
		t.Errorf("the line has the fields %v, the documents %v", got, want)
	}
}

// example is config.example.yaml with free ports in the place of its own.
func example(t *testing.T) string {
	t.Helper()
	b := filetest.Read(t, "../config.example.yaml")
	text := string(b)
	for _, port := range []string{`":8080"`, `"127.0.0.1:9901"`} {
		if strings.Count(text, port) != 1 {
			t.Fatalf("config.example.yaml names %s %d times, want once", port, strings.Count(text, port))
		}
		text = strings.Replace(text, port, `"127.0.0.1:0"`, 1)
	}
	return text
}

func TestQuickStart_ReadsWeirYAMLFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.example.yaml"), example(t))
	write(t, filepath.Join(dir, "weir.yaml"), "routes:\n  - {match: {path: /mine}, upstream: echo}\nupstreams: {echo: echo}\n"+weirtest.Listeners)
	w := startWith(t, dir, "run")
	if status, body := w.get(w.URL + "/mine"); status != http.StatusOK {
		t.Errorf("weir.yaml's route is answered %d %s, want 200", status, body)
	}
	if got := w.send("1"); got != http.StatusNotFound {
		t.Errorf("config.example.yaml's route is answered %d, want 404", got)
	}
}

// The quick start with Redis is followed as it is written, but for the ports
// and the timeout of Redis for a busy machine: its file, its two processes with their environment, its questions.
func TestQuickStart_WithRedis(t *testing.T) {
	t.Parallel()
	part := doc(t, "README.md").section(t, "Quick start with Redis")
	server := redistest.Start(t)
	file, asked := part.blocks("yaml")[0], part.blocks("sh")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "weir.yaml"), strings.Replace(file, `"127.0.0.1:6379"]`, `"`+server.Addr+`"], timeout: 5s`, 1))

	commands := regexp.MustCompile(`(?m)^((?:[A-Z_]+=\S+ )*)\./weir (.+)$`).FindAllStringSubmatch(asked[0], -1)
	if len(commands) != 2 || !strings.HasPrefix(asked[0], "go build .") || !strings.Contains(asked[0], "\nredis-server --port 6379 --maxmemory-policy noeviction\n") || !strings.Contains(file, `"127.0.0.1:6379"`) {
		t.Fatalf("this starts no Redis and two Weirs:\n%s", asked[0])
	}
	var replaced []string
	for _, c := range commands {
		ports := map[string]string{} // as the file reads them
		for _, m := range regexp.MustCompile(`\$\{(\w+):-127\.0\.0\.1:(\d+)\}`).FindAllStringSubmatch(file, -1) {
			ports[m[1]] = m[2]
		}
		if len(ports) != 2 {
			t.Fatalf("the file does not leave both ports to the environment: %v", ports)
		}
		for _, setting := range strings.Fields(c[1]) {
			name, address, _ := strings.Cut(setting, "=")
			if ports[name] == "" {
				t.Fatalf("the file does not know %s", name)
			}
			_, ports[name], _ = strings.Cut(address, ":")
		}
		cmd := exec.Command("weir", strings.Fields(c[2])...)
		cmd.Env = os.Environ()
		for name := range ports {
			cmd.Env = append(cmd.Env, name+"=127.0.0.1:0")
		}
		w := launch(t, dir, cmd)
		replaced = append(replaced, "localhost:"+ports["WEIR_LISTEN"], w.URL, "localhost:"+ports["WEIR_ADMIN_LISTEN"], w.Admin)
	}
	if n := part.ask(t, strings.NewReplacer(replaced...)); n < 4 {
		t.Errorf("%d questions found", n)
	}
}
