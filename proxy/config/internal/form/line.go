package form

import (
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// Line formats a form as YAML on one line, without defaults.
func (w Written) Line(form any) string { return w.LineOf(form, form) }

// LineOf is like Line, for a form derived from another one, which has the written values.
func (w Written) LineOf(form, of any) string {
	var root yaml.Node
	if err := root.Encode(form); err != nil {
		panic(err) // a form can be encoded
	}
	w.Restore(&root, reflect.ValueOf(of))
	dropDefaults(&root, reflect.TypeOf(form))
	root.Style = yaml.FlowStyle
	b, err := yaml.Marshal(&root)
	if err != nil {
		panic(err)
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// Fields returns the fields of a mapping in the form of Line, in their order, each as YAML on one line. They are nil
// if text is no mapping.
func Fields(text string) (names []string, values map[string]string) {
	var root yaml.Node
	if yaml.Unmarshal([]byte(text), &root) != nil || len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return nil, nil
	}
	values = map[string]string{}
	of := root.Content[0].Content
	for i := 0; i+1 < len(of); i += 2 {
		b, err := yaml.Marshal(of[i+1])
		if err != nil {
			panic(err) // it was just read
		}
		names = append(names, of[i].Value)
		values[of[i].Value] = strings.Join(strings.Fields(string(b)), " ")
	}
	return names, values
}

// dropDefaults removes from n, the encoding of a form of type t, the fields that have their
// default.
func dropDefaults(n *yaml.Node, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, c := range n.Content {
			dropDefaults(c, t.Elem())
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		var left []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			index, ok := FieldIndex(t, name.Value)
			if ok {
				field := t.Field(index)
				dropDefaults(value, field.Type)
				if standard := TagOf(field).Default; standard != nil && value.Value == *standard && value.Kind == yaml.ScalarNode || value.Kind != yaml.ScalarNode && len(value.Content) == 0 {
					continue
				}
			}
			left = append(left, name, value)
		}
		n.Content = left
	}
}
