package config

import (
	"bytes"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/test/rounds"
)

// One mistake in a good file is reported first, at its place: never before it what only follows from it. A name that is
// misspelled, and fields that are not indented, are one problem.
func TestLoad_OneMistakeIsReportedFirst(t *testing.T) {
	each := max(1, 10/rounds.Of(1))            // each tenth field
	files := map[string]int{example: 4 * each} // and fewer of the longest
	for _, name := range []string{"budget", "common-limits", "counted", "decide-waits", "front", "keys", "return-on"} {
		files["testdata/good-"+name+".yaml"] = each
	}
	for _, m := range []struct {
		name  string
		alone bool // nothing else is reported
		make  func(f *fieldNode) bool
	}{
		{"misspelled", true, func(f *fieldNode) bool {
			f.name.Value += "x"
			return len(f.name.Value) > 3
		}},
		{"no value", false, func(f *fieldNode) bool {
			*f.value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
			return true
		}},
		{"another kind", false, func(f *fieldNode) bool {
			if f.value.Kind == yaml.MappingNode && len(f.value.Content) > 0 {
				*f.value = yaml.Node{Kind: yaml.SequenceNode}
			} else {
				*f.value = yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "odd"}, {Kind: yaml.ScalarNode, Value: "odd"}}}
			}
			return true
		}},
		{"not indented", true, func(f *fieldNode) bool {
			moved := f.value.Content
			if f.value.Kind != yaml.MappingNode || f.isMap || len(moved) == 0 {
				return false
			}
			for i := 0; i < len(moved); i += 2 {
				if _, known := form.FieldIndex(f.of, moved[i].Value); known {
					return false
				}
			}
			f.parent.Content = slices.Concat(f.parent.Content[:f.at+2], moved, f.parent.Content[f.at+2:])
			*f.value = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
			return true
		}},
	} {
		t.Run(m.name, func(t *testing.T) {
			made := 0
			for path, step := range files {
				for n := 0; ; n += step {
					root := tree(t, path)
					f := findField(root, n)
					if f == nil {
						break
					}
					if !m.make(f) {
						continue
					}
					text, err := yaml.Marshal(root)
					if err != nil {
						t.Fatal(err)
					}
					made++
					if all := reportsFirst(t, path, text, n); m.alone && len(all) > 1 {
						t.Errorf("%s: more than one problem:\n%v", path, all)
					}
				}
			}
			if made < 10 {
				t.Errorf("only %d mistakes were made", made)
			}
		})
	}
}

// reportsFirst checks that the first problem of the text, which has a mistake in its n-th field, stands there, and returns all.
func reportsFirst(t *testing.T, path string, text []byte, n int) Problems {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil // comments of the file stand in the way
	}
	f := findField(&root, n)
	r := newLoader(environment)
	_, err := r.whole(path, r.read(filepath.Join(filepath.Dir(path), "changed.yaml"), "", text))
	var problems Problems
	if !errors.As(err, &problems) {
		return nil // such a name or value is good as well
	}
	places := []*yaml.Node{f.name, f.value}
	if f.at+2 < len(f.parent.Content) {
		places = append(places, f.parent.Content[f.at+2])
	}
	if f.value.Kind == yaml.MappingNode && len(f.value.Content) > 0 {
		places = append(places, f.value.Content[0])
	}
	if !slices.ContainsFunc(places, func(n *yaml.Node) bool { return n.Line == problems[0].Line && n.Column == problems[0].Column }) {
		line := bytes.Split(text, []byte("\n"))[f.name.Line-1]
		t.Errorf("%s: %d:%d, %q:\n%v", path, f.name.Line, f.name.Column, strings.TrimSpace(string(line)), err)
	}
	return problems
}

// A fieldNode is a field of a form in a file.
type fieldNode struct {
	parent, name, value *yaml.Node
	of                  reflect.Type // the form
	at                  int          // in the content of parent
	isMap               bool         // its value has any names
}

// findField returns the n-th field of a form in a document; nil if there are fewer.
func findField(root *yaml.Node, n int) (found *fieldNode) {
	var visit func(node *yaml.Node, of reflect.Type)
	visit = func(node *yaml.Node, of reflect.Type) {
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		for i, c := range node.Content {
			switch {
			case node.Kind == yaml.SequenceNode && of.Kind() == reflect.Slice, node.Kind == yaml.MappingNode && of.Kind() == reflect.Map && i%2 == 1:
				visit(c, of.Elem())
			case node.Kind == yaml.MappingNode && of.Kind() == reflect.Struct && i%2 == 0:
				index, ok := form.FieldIndex(of, c.Value)
				if n--; n == -1 {
					found = &fieldNode{node, c, node.Content[i+1], of, i, ok && of.Field(max(index, 0)).Type.Kind() == reflect.Map}
				}
				if ok {
					visit(node.Content[i+1], of.Field(index).Type)
				}
			}
		}
	}
	visit(root.Content[0], reflect.TypeFor[Config]())
	return found
}

// Whatever field stands in the wrong form, its place is named: this follows from the types of the forms alone.
func TestLoad_SaysWhereAFieldBelongs(t *testing.T) {
	homes := map[string]int{} // places of a field
	var visit func(of reflect.Type)
	visit = func(of reflect.Type) {
		for i := range of.NumField() {
			homes[form.FieldName(of.Field(i))]++
			if sub := formOf(of.Field(i)); sub != nil {
				visit(sub)
			}
		}
	}
	visit(reflect.TypeFor[Config]())
	delete(homes, "")
	seen, each := map[reflect.Type]bool{}, max(1, 4/rounds.Of(1)) // in each form a fourth of the names
	for n, root := 0, tree(t, example); ; n++ {
		f := findField(root, n)
		if f == nil {
			break
		}
		if seen[f.of] {
			continue
		}
		seen[f.of] = true
		root := tree(t, example)
		parent := findField(root, n).parent
		want := 0
		for i, name := range form.SortedKeys(homes) {
			if _, known := form.FieldIndex(f.of, name); !known && name != "enabled" && i%each == len(seen)%each {
				want++
				parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &yaml.Node{Kind: yaml.ScalarNode, Value: "odd"})
			}
		}
		text, err := yaml.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		r := newLoader(environment)
		r.read(example, "", text)
		found := 0
		for _, p := range r.Problems() {
			quoted, is := strings.CutPrefix(p.What, "unknown field ")
			if !is {
				continue
			}
			found++
			name := strings.Trim(quoted, `"`)
			if all := "write " + form.FieldNames(f.of)[0] + ", "; homes[name] <= 3 && strings.HasPrefix(p.Instead, all) {
				t.Errorf("%s in %s: %s", name, f.of.Name(), p.Instead)
			}
		}
		if found < want {
			t.Errorf("%s: %d unknown fields are reported; want %d", f.of.Name(), found, want)
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d forms were tried", len(seen))
	}
}
