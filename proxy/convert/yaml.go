package convert

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/view"
)

// A node is a value in a YAML file, with its line. The zero node is one that is not there;
// all methods work with it.
type node struct {
	at   *yaml.Node
	used map[*yaml.Node]bool // the names of fields that were read; those that were not are listed at the end
}

// documents reads all documents of a file.
func (d *document) documents(data []byte, expected string) (all []node) {
	used := map[*yaml.Node]bool{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := decoder.Decode(&n)
		switch {
		case errors.Is(err, io.EOF) && len(all) == 0:
			d.wrong(0, "is empty", expected)
			return nil
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			m := yamlLine.FindStringSubmatch(err.Error())
			line, _ := strconv.Atoi(m[1])
			d.wrong(line, "is not YAML: "+strings.TrimPrefix(err.Error(), m[0]), expected)
			return nil
		case hasAlias(&n):
			d.wrong(n.Line, "has aliases, which are not read", "write out what they stand for")
			return nil
		}
		switch root := (node{n.Content[0], used}); {
		case root.at.Kind == yaml.MappingNode:
			all = append(all, root)
		case root.at.Kind != yaml.ScalarNode || root.text() != "": // but for nothing between two ---
			d.wrong(root.line(), "is not a mapping", expected)
			return nil
		}
	}
}

// hasAlias reports whether there is an alias in a node.
func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

// yamlLine matches the line in an error of the YAML library.
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line ([0-9]+): )?`)

// line returns the line at which the value begins; 0 if it is not there.
func (n node) line() int {
	if n.at == nil {
		return 0
	}
	return n.at.Line
}

// isThere reports whether there is such a value.
func (n node) isThere() bool { return n.at != nil }

// text returns the text of a scalar; "" for all else, and for null.
func (n node) text() string { return strings.TrimSpace(n.value()) }

// value is text with the white space around it.
func (n node) value() string {
	if n.at == nil || n.at.Kind != yaml.ScalarNode || n.at.Tag == "!!null" {
		return ""
	}
	return n.at.Value
}

// get returns the value at a path of names, without regard to case, as tools of Kubernetes
// write them, and marks them.
func (n node) get(path ...string) node {
	for _, name := range path {
		var found node
		for key, value := range n.fields() {
			if strings.EqualFold(key.text(), name) {
				found = value
				key.use()
			}
		}
		n = found
	}
	return n
}

// fields returns the names and values of a mapping.
func (n node) fields() iter.Seq2[node, node] {
	return func(yield func(name, value node) bool) {
		if n.at == nil || n.at.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.at.Content); i += 2 {
			if !yield(node{n.at.Content[i], n.used}, node{n.at.Content[i+1], n.used}) {
				return
			}
		}
	}
}

// items returns the elements of a list, or one value as if it was a list.
func (n node) items() []node {
	if n.at == nil || n.at.Tag == "!!null" || n.at.Kind == yaml.SequenceNode {
		return n.list()
	}
	return []node{n}
}

// list returns the elements of a list; none of all else.
func (n node) list() []node {
	if n.at == nil || n.at.Kind != yaml.SequenceNode {
		return nil
	}
	return view.Each(n.at.Content, func(item *yaml.Node) node { return node{item, n.used} })
}

// use marks the name of a field.
func (n node) use() { n.used[n.at] = true }

// useAll marks the names of all fields below a node.
func (n node) useAll() {
	for name, value := range n.fields() {
		name.use()
		value.useAll()
	}
	for _, item := range n.list() {
		item.useAll()
	}
}

// useMeta marks what of an object of Kubernetes has no meaning for requests.
func (n node) useMeta() {
	for _, name := range []string{"apiVersion", "kind", "status"} {
		n.get(name).useAll()
	}
	for name, value := range n.get("metadata").fields() {
		if !strings.EqualFold(name.text(), "annotations") {
			name.use()
			value.useAll()
		}
	}
}

// leaveUnused lists the fields below a node that nothing has marked, but for those that are not
// set. hint says what to do about one.
func (d *document) leaveUnused(n node, hint func(name string) string) {
	for name, value := range n.fields() {
		if n.used[name.at] {
			d.leaveUnused(value, hint)
		} else if value.at.Tag != "!!null" && value.at.Value != "false" {
			d.left.add(name.line(), name.at.Value, hint(name.at.Value))
		}
	}
	for _, item := range n.list() {
		d.leaveUnused(item, hint)
	}
}

// number reads a whole number, 0 if it is not there.
func (d *document) number(n node) int64 {
	number, err := strconv.ParseUint(strings.ReplaceAll(n.text(), "_", ""), 10, 32)
	if err != nil && n.text() != "" {
		d.wrong(n.line(), strconv.Quote(n.text())+" is not a number", "expected a whole number, for example 10")
	}
	return int64(number)
}

// objects returns the objects of Kubernetes in documents, also those in lists.
func objects(documents []node) (all []node) {
	for _, d := range documents {
		if strings.HasSuffix(d.get("kind").text(), "List") {
			all = append(all, d.get("items").items()...)
		} else {
			all = append(all, d)
		}
	}
	return all
}
