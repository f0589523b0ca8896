package form

import (
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Written holds the values with environment variables as they are written in the file, by
// pointer to the field. Comparisons of configurations show these, because the values of
// variables belong to the machine that answers.
type Written map[any]string

// Restore replaces values in n, the encoding of form v, by what was written. Secrets stay
// masked.
func (w Written) Restore(n *yaml.Node, v reflect.Value) {
	if len(w) == 0 {
		return
	}
	if v.Kind() == reflect.Pointer {
		if !v.IsNil() {
			w.Restore(n, v.Elem())
		}
		return
	}
	switch n.Kind {
	case yaml.ScalarNode:
		w.scalar(n, v)
	case yaml.SequenceNode:
		if v.Kind() == reflect.Slice && v.Len() == len(n.Content) {
			for i, c := range n.Content {
				w.Restore(c, v.Index(i))
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if of := member(v, n.Content[i].Value); of.IsValid() {
				w.Restore(n.Content[i+1], of)
			}
		}
	}
}

// scalar restores one value; in the short form it is in a field.
func (w Written) scalar(n *yaml.Node, v reflect.Value) {
	if !v.CanAddr() || IsSecret(v.Type()) {
		return
	}
	if s, ok := v.Addr().Interface().(Shorthand); ok {
		v = v.FieldByName(s.Short())
	}
	if v.Kind() == reflect.Slice && v.Len() == 1 {
		v = v.Index(0)
	}
	if text, ok := w[v.Addr().Interface()]; ok {
		n.SetString(text)
		n.Style = yaml.DoubleQuotedStyle
	}
}

// member returns the field or entry of v with this name; the zero Value if there is none.
func member(v reflect.Value, name string) reflect.Value {
	switch v.Kind() {
	case reflect.Struct:
		if i, ok := FieldIndex(v.Type(), name); ok {
			return v.Field(i)
		}
	case reflect.Map:
		return v.MapIndex(reflect.ValueOf(name))
	}
	return reflect.Value{}
}

// Written returns the values with environment variables as they are written.
func (r *Reader) Written() Written { return r.written }

// HideVariables makes problems show the names of variables instead of their values.
func (r *Reader) HideVariables() {
	env := r.env
	r.variables = map[string]string{}
	r.env = func(name string) (string, bool) {
		value, set := env(name)
		if value != "" {
			r.variables[value] = "${" + name + "}"
		}
		return value, set
	}
}

// leastHidden is the minimum length of values that are recognized within a text.
const leastHidden = 4

// unfilled returns p with the values of variables replaced by their names, for the sender
// of a pushed configuration.
func (r *Reader) unfilled(p Problem) Problem {
	for value, name := range r.variables {
		for _, text := range []*string{&p.What, &p.Instead} {
			*text = strings.ReplaceAll(*text, Quote(value), strconv.Quote(name))
			if len(value) >= leastHidden {
				*text = strings.ReplaceAll(*text, value, name)
			}
		}
	}
	return p
}
