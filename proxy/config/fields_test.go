package config

import (
	"bytes"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/rounds"
)

// A leaf is a value that a file writes, and where: routes[].limits[].rate.
type leaf struct {
	path string
	node *yaml.Node
}

// leaves are all values below n.
func leaves(n *yaml.Node, path string) (all []leaf) {
	switch n.Kind {
	case yaml.DocumentNode:
		return leaves(n.Content[0], path)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			all = append(all, leaves(c, path+"[]")...)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			all = append(all, leaves(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."))...)
		}
	case yaml.ScalarNode:
		return []leaf{{path, n}}
	}
	return all
}

var number = regexp.MustCompile(`\d+`)

// others are values that might stand in the place of text, which field says: another
// choice, a number more or less, more text.
func others(field, text string) []string {
	switch text {
	case "true":
		return []string{"false"}
	case "false":
		return []string{"true"}
	}
	var all []string
	if number.MatchString(text) {
		all = []string{
			number.ReplaceAllStringFunc(text, func(n string) string { return n + "0" }), number.ReplaceAllStringFunc(text, func(n string) string { return n[:1] }),
			number.ReplaceAllString(text, "7"), number.ReplaceAllString(text, "429"),
		}
	}
	all = append(append(all, choices(field)...), names(field)...)
	return slices.DeleteFunc(append(all, "lower", "skip", "reject", "header:X-Other", "5s", "x-"+text, text+"x"), func(other string) bool { return other == text })
}

// names are what fields of that name may refer to in any file.
func names(field string) []string {
	switch field {
	case "upstream", "demo":
		return []string{"echo", "http://127.0.0.1:9"}
	case "of", "join":
		return []string{"header:X-Other", "client_ip"}
	}
	return nil
}

// choices are the values of fields of that name that have choices.
func choices(name string) (all []string) {
	forms := map[string]reflect.Type{}
	collect(forms, reflect.TypeFor[Config]())
	for _, of := range forms {
		if i, ok := form.FieldIndex(of, name); ok {
			all = append(all, form.TagOf(of.Field(i)).Enum...)
		}
	}
	return all
}

// alone are values of which nothing else is tried: what a variable holds and a
// share may be written in several ways, and nobody asks for lists and prices that are idle.
var alone = regexp.MustCompile(`\$\{|<<|^(version|include|lists\.idle\.|limits\.idle\.|prices\.few\.|traces\.sample)`)

// entry is a part of a file that has a name of its own, and fields as its neighbours have.
var entry = regexp.MustCompile(`^(upstreams|keys|lists)\.[^.\[]+`)

// files are those whose fields are changed: the example, which is long, in long runs only.
func files(t *testing.T) []string {
	t.Helper()
	good := mustGlob(t, "testdata/good-*.yaml")
	if rounds.Of(1) > 1 {
		good = append(good, example)
	}
	return good
}

// Whatever a file says makes a difference: to what is served, to what is shown of it
// and, unless it needs a restart, to what a push would change.
func TestFields_EachMakesADifference(t *testing.T) {
	changed, stuck, tried := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, path := range files(t) {
		root := tree(t, path)
		was := mustCompile(t, path, root)
		shown := effective(t, was)
		for _, l := range leaves(root, "") {
			field := entry.ReplaceAllString(l.path, "$1.*")
			if tried[field]++; changed[field] || tried[field] > rounds.Of(2) || alone.MatchString(l.path+": "+l.node.Value) {
				continue
			}
			text, tag, style := l.node.Value, l.node.Tag, l.node.Style
			stuck[field] = true
			for _, other := range others(strings.TrimSuffix(l.path[strings.LastIndex(l.path, ".")+1:], "[]"), text) {
				l.node.SetString(other)
				if tag != "!!str" || style == 0 {
					l.node.Tag = ""
				}
				is, err := compileTree(t, path, root)
				if err != nil {
					continue
				}
				changed[field] = true
				difference(t, l.path+": "+other, configs{was, is, shown})
				break
			}
			l.node.Value, l.node.Tag, l.node.Style = text, tag, style
			if changed[field] {
				delete(stuck, field)
			}
		}
	}
	if len(changed) < 200 {
		t.Errorf("only %d fields were changed, and not %v", len(changed), slices.Sorted(maps.Keys(stuck)))
	}
}

// configs are one before and after a change, and what is shown of the one before.
type configs struct {
	was, is *Config
	shown   []byte
}

// difference checks that the two differ in every respect.
func difference(t *testing.T, what string, c configs) {
	t.Helper()
	if !bytes.Equal(c.shown, effective(t, c.is)) {
		if reflect.DeepEqual(outcome(*c.was), outcome(*c.is)) {
			t.Errorf("%s: it is shown, and nothing comes of it", what)
		}
	} else if !hidden.MatchString(what) {
		t.Errorf("%s: the effective config does not tell", what)
	}
	section, _, _ := strings.Cut(what, ".")
	section, _, _ = strings.Cut(section, ":")
	if slices.Contains([]string{"listen", "admin", "store", "redis", "reload"}, section) {
		return
	}
	if len(Compare(c.was, c.is)) == 0 {
		t.Errorf("%s: a push would not tell of it", what)
	}
}

// hidden are secrets, and the values of sensitive keys.
var hidden = regexp.MustCompile(`password|secret|token|webhook|headers|^lists\.stolen\.values`)

// outcome is c without what says how it is written.
func outcome(c Config) Config {
	c.Hash, c.Sum, c.Files, c.Globs, c.Warnings, c.Remarks, c.Bare, c.form = "", "", nil, nil, nil, nil, nil, nil
	c.opened, c.outputs, c.written, c.values, c.own, c.lined = nil, nil, nil, nil, nil, nil
	return c
}

func tree(t *testing.T, path string) *yaml.Node {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal(filetest.Read(t, path), &root); err != nil {
		t.Fatal(err)
	}
	return &root
}

// compileTree is what is made of root, in the place of the file at path.
func compileTree(t *testing.T, path string, root *yaml.Node) (*Config, error) {
	t.Helper()
	text, err := yaml.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	r := newLoader(environment)
	return r.whole(path, r.read(filepath.Join(filepath.Dir(path), "changed.yaml"), "", text))
}

func mustCompile(t *testing.T, path string, root *yaml.Node) *Config {
	t.Helper()
	c, err := compileTree(t, path, root)
	if err != nil {
		t.Fatalf("%s, written again: %v", path, err)
	}
	return c
}
