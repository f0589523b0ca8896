package test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/await"
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
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	fields := map[string]field{}
	collector{s.Defs, fields}.add(s, node{})

	told := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z][\\w.]*)` \\| (?:`([^`]+)`|-) \\| ").FindAllStringSubmatch(doc(t, "proxy/docs/fields.md").text+doc(t, "proxy/docs/fields-routes.md").text, -1) {
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
			t.Errorf("%s has no line in proxy/docs/fields.md or fields-routes.md: | `%s` | `%s` | what it does |", path, path, f.standard)
		}
	}
}

// Commands and flags are those that there are, and all commands are told of.
func TestReference_NamesEveryCommand(t *testing.T) {
	t.Parallel()
	_, help, _ := command(t, ".", "--help")
	_, list, _ := strings.Cut(help, "Commands:")
	helps := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+)\b`).FindAllStringSubmatch(list, -1) {
		_, helps[m[1]], _ = command(t, ".", m[1], "--help")
		for _, sub := range regexp.MustCompile(`(?m)^  `+m[1]+` ([a-z]+)\b`).FindAllStringSubmatch(helps[m[1]], -1) {
			_, more, _ := command(t, ".", m[1], sub[1], "--help")
			helps[m[1]] += more
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
	table, err := os.ReadFile("../proxy/cluster/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range helps {
		if !told[name] {
			t.Errorf("no document tells of weir %s", name)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(doc(t, "proxy/cluster/README.md").section(t, "Troubleshooting").text, -1)
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
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(doc(t, "proxy/cluster/README.md").section(t, "Cluster").text, -1) {
		told = append(told, m[1])
	}
	slices.Sort(told)
	w := start(t, redisYAML(redistest.Start(t).Addr)+"upstreams: {demo: echo}\nroutes: [{match: {path: /}, upstream: demo}]\n"+
		"alerts: {webhook: \"https://127.0.0.1:1/\", secret: \"long and made at random\"}\n")
	await.Until(t, "the leader has run the tasks of proxy/cluster/README.md, and no others", func() bool {
		var leader struct {
			Tasks []struct {
				Task string `json:"task"`
			} `json:"tasks"`
		}
		_, body := w.get(w.Admin + "/api/v1/leader")
		if err := json.Unmarshal([]byte(body), &leader); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, task := range leader.Tasks {
			names = append(names, task.Task)
		}
		slices.Sort(names)
		return len(names) > 0 && slices.Equal(names, told)
	})
}
