package config

import (
	"cmp"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/key"
)

// A Value is a value of a list or the key of an override, with its position or the file that contains it.
type Value struct {
	List     string // the name of its list; empty if it is of an override
	Spec     *key.Spec
	Position // empty if File is given
	Text     string
	Written  string // empty unless it names variables
	File     string // the file of values
	Prefix   bool   // prefixes of values
	limit    *limitForm
}

// Values returns the values of all lists and the keys of all overrides.
func (c *Config) Values() []Value { return c.values }

// IsConcealed reports whether v is not shown where others may read it. A prefix is: it stands for a range of keys.
func (v *Value) IsConcealed() bool { return v.Spec.IsConcealed() && !v.Prefix }

// IsVariable reports whether v names an environment variable, whose value is not in the configuration's files.
func (v *Value) IsVariable() bool { return strings.Contains(v.Written, "${") }

// Where returns the name of the file that contains v.
func (v *Value) Where() string { return cmp.Or(v.File, v.Position.File) }

// hideValues removes the values of sensitive keys from the lists and overrides of root, the form of c, and says how many
// there are.
func (c *Config) hideValues(root *yaml.Node) {
	hidden := map[*limitForm]bool{}
	for _, v := range c.values {
		if !v.IsConcealed() {
			continue
		}
		hidden[v.limit] = true
		clearNode(child(root, "lists", v.List, "values"), 1)
	}
	for name, f := range c.form.Limits {
		if hidden[f] {
			clearNode(child(root, "limits", name, "overrides"), 2)
		}
	}
	routes := child(root, "routes")
	for i, r := range c.form.Routes {
		for j, f := range r.Limits {
			if hidden[f] {
				clearNode(child(child(routes.Content[i], "limits").Content[j], "overrides"), 2)
			}
		}
	}
}

// child returns what a mapping has at the path of names; nil if it has nothing there.
func child(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		i := 0
		for i < len(n.Content) && n.Content[i].Value != name {
			i += 2
		}
		if i >= len(n.Content) {
			return nil
		}
		n = n.Content[i+1]
	}
	return n
}

// clearNode empties a sequence or mapping, whose entries are of so many nodes.
func clearNode(n *yaml.Node, size int) {
	if n != nil && len(n.Content) > 0 {
		n.LineComment = fmt.Sprintf("%d, not shown", len(n.Content)/size)
		n.Content, n.Style = nil, yaml.FlowStyle
	}
}
