package test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
)

// A schema is what is asked of the JSON Schema of the configuration.
type schema struct {
	Ref        string            `json:"$ref"`
	Defs       map[string]schema `json:"$defs"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	More       json.RawMessage   `json:"additionalProperties"` // a schema, or false
	AnyOf      []schema          `json:"anyOf"`
	OneOf      []schema          `json:"oneOf"`
	Default    any               `json:"default"`
}

// A field is one place in a configuration.
type field struct {
	form     string // the form that it belongs to, and its name in that: one form may stand in several places
	standard string // the default; empty if there is none
}

// A node is a place in the schema.
type node struct {
	path string
	form string
	open []string // the forms around it
}

// A collector gathers the fields of a configuration by their path.
type collector struct {
	defs   map[string]schema
	fields map[string]field
}

// add adds the fields below s, which stands at n.
func (c collector) add(s schema, n node) {
	if name := strings.TrimPrefix(s.Ref, "#/$defs/"); s.Ref != "" {
		if !slices.Contains(n.open, name) { // keys may stand in keys
			c.add(c.defs[name], node{n.path, name, append(slices.Clone(n.open), name)})
		}
		return
	}
	for _, part := range slices.Concat(s.AnyOf, s.OneOf) {
		c.add(part, n)
	}
	if s.Items != nil {
		c.add(*s.Items, n)
	}
	var named schema
	if json.Unmarshal(s.More, &named) == nil { // else it is false
		c.add(named, node{n.path + ".NAME", n.form, n.open})
	}
	for name, sub := range s.Properties {
		at := strings.TrimPrefix(n.path+"."+name, ".")
		standard := ""
		if sub.Default != nil {
			standard = fmt.Sprint(sub.Default)
		}
		c.fields[at] = field{n.form + "." + name, standard}
		c.add(sub, node{at, n.form, n.open})
	}
}

// The reference has a line for every field of the configuration, with its default,
// and none for another.
func TestReference_NamesEveryField(t *testing.T) {
	_, text, _ := command(t, ".", "schema")
	var s schema
	check(t, json.Unmarshal([]byte(text), &s))
	fields := map[string]field{}
	collector{s.Defs, fields}.add(s, node{})

	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z][\\w.]*)` \\| (?:`([^`]+)`|-) \\| ").FindAllStringSubmatch(doc(t, "proxy/docs/fields.md").text+doc(t, "proxy/docs/fields-routes.md").text+doc(t, "proxy/docs/fields-limits.md").text, -1) {
		f, known := fields[m[1]]
		if !known {
			t.Errorf("proxy/docs tells of the field %s, which there is not", m[1])
		} else if m[2] != f.standard {
			t.Errorf("proxy/docs says that the default of %s is %q, the schema %q", m[1], m[2], f.standard)
		}
		told[f.form] = true
	}
	if len(told) < 100 {
		t.Fatalf("%d fields found in the tables", len(told))
	}
	for path, f := range fields {
		if !told[f.form] {
			t.Errorf("%s has no line in proxy/docs/fields.md, fields-routes.md or fields-limits.md: | `%s` | `%s` | what it does |", path, path, f.standard)
		}
	}
}

// Commands and flags are those that there are, and all commands are told of.
func TestReference_NamesEveryCommand(t *testing.T) {
	t.Parallel()
	_, help, _ := command(t, ".", "--help")
	_, list, _ := strings.Cut(help, "Commands:")
	helps, commands := map[string]string{}, []string{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+)\b`).FindAllStringSubmatch(list, -1) {
		_, helps[m[1]], _ = command(t, ".", m[1], "--help")
		for _, sub := range regexp.MustCompile(`(?m)^  `+m[1]+` ([a-z]+)\b`).FindAllStringSubmatch(helps[m[1]], -1) {
			_, more, _ := command(t, ".", m[1], sub[1], "--help")
			helps[m[1]] += more
			commands = append(commands, m[1]+" "+sub[1])
		}
	}
	told := map[string]bool{}
	for _, d := range docs(t) {
		for _, m := range regexp.MustCompile("(?m)(?:^(?:\\./)?|`)weir ([a-z]+)([^`#|\n]*)").FindAllStringSubmatch(d.text, -1) {
			text, known := helps[m[1]]
			if !known && strings.Contains(m[0], "`") {
				t.Errorf("%s speaks of weir %s, which there is not", d.path, m[1])
			}
			told[m[1]] = true
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(m[2], -1) {
				if known && !strings.Contains(text, flag) {
					t.Errorf("%s: weir %s has no flag %s", d.path, m[1], flag)
				}
			}
		}
	}
	table := filetest.Read(t, "../proxy/docs/commands.md")
	for name := range helps {
		if !told[name] {
			t.Errorf("no document tells of weir %s", name)
		}
	}
	for _, name := range slices.AppendSeq(commands, maps.Keys(helps)) {
		if !regexp.MustCompile("(?m)^\\| `weir " + name + "\\b").Match(table) {
			t.Errorf("the table of commands has no weir %s", name)
		}
	}
	if len(helps) < 8 {
		t.Errorf("weir --help lists %d commands", len(helps))
	}
}

// What Troubleshooting quotes is what Weir says, to the letter.
func TestReference_QuotesMessagesThatAre(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("../proxy", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		code.Write(b)
		return err
	})
	check(t, err)
	quoted := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(doc(t, "proxy/docs/troubleshooting.md").section(t, "Messages").text, -1)
	if len(quoted) < 8 {
		t.Fatalf("%d messages found", len(quoted))
	}
	for _, m := range quoted {
		if !strings.Contains(code.String(), m[1]) {
			t.Errorf("Troubleshooting quotes %q, which is nowhere in the code", m[1])
		}
	}
}

// The tasks of the leader are those that Weir says.
func TestReference_NamesEveryTask(t *testing.T) {
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(doc(t, "proxy/docs/cluster.md").section(t, "Cluster").text, -1) {
		told = append(told, m[1])
	}
	slices.Sort(told)
	w := start(t, redisYAML(redistest.Start(t).Addr)+"upstreams: {demo: echo}\nroutes: [{match: {path: /}, upstream: demo}]\n"+
		"alerts: {webhook: \"https://127.0.0.1:1/\", secret: \"long and made at random\"}\n")
	await.Until(t, "the leader has run the tasks of proxy/docs/cluster.md, and no others", func() bool {
		leader := w.leadership()
		var names []string
		for _, task := range leader.Tasks {
			names = append(names, task.Task)
		}
		slices.Sort(names)
		return len(names) > 0 && slices.Equal(names, told)
	})
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
keys: {number: {from: "header:X-Number", normalize: e164}, country: {of: number, part: country}}
lists: {friends: {key: "header:X-Phone", values: [friend], action: bypass}}
routes:
  - {match: {path: /banned}, upstream: demo, lists: [friends], limits: [{key: "header:X-Phone", rate: 1/1h, penalty: {ban: 1h, after: 1}}]}
  - {match: {path: /once}, upstream: demo, idempotency: {header: Idempotency-Key}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {match: {path: /v1/sms/send}, upstream: demo, new_keys: 100/1m, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: again, match: {path: /again}, upstream: demo, limits: [{key: "header:X-Phone", cooldown: [1h], reset_on: {route: right}}]}
  - {name: unused, match: {path: /unused}, upstream: demo, limits: [{key: client_ip, rate: 1000/1h, return_on: {route: right, key: "header:X-Phone"}}, {name: few, key: client_ip, rate: 1/1h, return_on: {route: right, key: "header:X-Phone"}, mode: shadow}]}
  - {name: code, match: {path: /code}, upstream: demo, limits: [{key: country, rate: 1000/1h, return_on: {route: entered, key: number}}]}
  - {name: entered, match: {path: /entered}, upstream: demo, limits: [{key: number, rate: 9/1h}]}
  - {name: right, match: {path: /right}, upstream: demo, limits: [{key: "header:X-Phone", rate: 9/1h, plans: {pro: 90/1h}}]}
  - {match: {path: /challenged}, upstream: demo, limits: [{key: client_ip, rate: 1/1h, step_up: {rate: 1/1h, jwt: {secret: "a secret for tokens of challenges"}}}]}
  - {match: {path: /wait}, upstream: demo, limits: [{key: "header:X-Phone", rate: 1/500ms, wait: 20s}]}
  - {match: {path: /gone}, upstream: gone, refund_on: {errors: [connect]}, limits: [{key: "header:X-Phone", rate: 1/1h}]}
  - {name: paid, match: {path: /paid}, upstream: demo, limits: [{name: spend, key: global, budget: [9/1h], price: sms, on_store_failure: deny}]}
  - {match: {path: /bad}, upstream: `+bad.URL+`}
  - {name: tokens, match: {path: /tokens}, upstream: demo, usage: {total: bytes}, limits: [{key: global, rate: 1000000/1h, max_cost: 9000, cost: {reserve: 9}}]}
  - {name: untold, match: {path: /untold}, upstream: demo, usage: anthropic, limits: [{key: global, rate: 1000000/1h, max_cost: 9000, cost: {reserve: 9}}]}
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
		post("/challenged", phone)
	}
	post("/unused", phone)
	do(w.t, http.MethodPost, w.URL+"/code", http.Header{"X-Number": {"+8613800138000"}})
	post("/paid", phone)
	post("/tokens", phone)
	post("/untold", phone)
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
