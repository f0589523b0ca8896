package form

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Written holds the values with environment variables as they are written in the file, by
// pointer to the field. Comparisons of configurations show these, because the values of
// variables belong to the machine that answers.
type Written map[any]string

// An encoder encodes forms as YAML. Values of fields with the tag hidden are not shown.
type encoder struct {
	written   Written      // shown instead of values; may be nil
	concealed map[any]bool // pointers to lists and mappings whose entries are not shown
	// brief returns a short text for one that is not shown, to compare it with others. If it is not nil, fields that have
	// their default are left out, as are entries of lists in concealed, and dollar signs are not escaped.
	brief func(text string) string
}

// Encode returns form, a pointer, as YAML with all defaults, to be loaded again. Of lists and mappings at the pointers in
// concealed a comment says how many entries they have.
func (w Written) Encode(form any, concealed map[any]bool) *yaml.Node {
	return encoder{written: w, concealed: concealed}.value(reflect.ValueOf(form), Tag{})
}

// Text returns what is written at pointer if that names variables, and otherwise text.
func (w Written) Text(pointer any, text string) string { return cmp.Or(w[pointer], text) }

// Texts is Text for the values of a mapping at a pointer, in a copy of it.
func (w Written) Texts(of *map[string]string) map[string]string {
	all := maps.Clone(*of)
	for name, text := range all {
		all[name] = w.Text(Entry{of, name}, text)
	}
	return all
}

// Line formats a form as YAML on one line, without defaults and without entries of lists that are in concealed. Secrets,
// and what lists and mappings at the pointers in concealed hold, appear as brief has them.
func (w Written) Line(form any, concealed map[any]bool, brief func(text string) string) string {
	n := encoder{w, concealed, brief}.value(reflect.ValueOf(form), Tag{})
	n.Style = yaml.FlowStyle
	return oneLine(n)
}

// oneLine returns n as YAML on one line.
func oneLine(n *yaml.Node) string {
	b, _ := yaml.Marshal(n) // a node can be encoded
	return strings.Join(strings.Fields(string(b)), " ")
}

// value encodes v, a field with the tag t.
func (e encoder) value(v reflect.Value, t Tag) *yaml.Node {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return e.value(v.Elem(), t)
	}
	n := &yaml.Node{}
	text := textOf(v)
	switch {
	case e.brief == nil && e.conceals(v) && v.Len() > 0:
		kind := map[reflect.Kind]yaml.Kind{reflect.Slice: yaml.SequenceNode, reflect.Map: yaml.MappingNode}[v.Kind()]
		return &yaml.Node{Kind: kind, Style: yaml.FlowStyle, LineComment: strconv.Itoa(v.Len()) + ", not shown"}
	case v.Kind() == reflect.Struct && text == nil:
		return e.fields(v)
	case v.Kind() == reflect.Map:
		return e.mapping(v, t)
	case v.Kind() == reflect.Slice:
		return e.slice(v, t)
	case t.hidden != "" && v.String() != "" && e.brief != nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "(not shown, " + e.brief(v.String()) + ")"}
	case t.hidden != "" && v.String() != "":
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.hidden}
	case text != nil:
		_ = n.Encode(text.Written()) // a text or a number can be encoded
	default:
		_ = n.Encode(v.Interface()) // so can other values of forms
	}
	e.escape(n)
	if v.CanAddr() {
		e.restore(n, v.Addr().Interface(), t)
	}
	return n
}

// conceals reports whether the entries of v are not shown.
func (e encoder) conceals(v reflect.Value) bool {
	return v.CanAddr() && e.concealed[v.Addr().Interface()]
}

// escape escapes the dollar signs of a value that is to be loaded again.
func (e encoder) escape(n *yaml.Node) {
	if e.brief == nil && strings.Contains(n.Value, "$") {
		n.Value, n.Style = strings.ReplaceAll(n.Value, "$", "$$"), yaml.DoubleQuotedStyle
	}
}

// restore replaces the value in n of the field at pointer by what was written. Secrets stay hidden.
func (e encoder) restore(n *yaml.Node, pointer any, t Tag) {
	if text, ok := e.written[pointer]; ok && t.hidden == "" {
		n.SetString(text)
		n.Style = yaml.DoubleQuotedStyle
	}
}

// slice encodes a list.
func (e encoder) slice(v reflect.Value, t Tag) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if e.conceals(v) && v.Len() > 0 {
		_ = n.Encode([]string{fmt.Sprintf("%d, not shown, %s", v.Len(), e.brief(fmt.Sprintf("%q", v)))})
	} else if texts := v.Type().Elem().Kind() == reflect.String; texts {
		_ = n.Encode(v.Interface()) // all at once: there may be many
		for i, c := range n.Content {
			e.escape(c)
			e.restore(c, v.Index(i).Addr().Interface(), t)
		}
	} else {
		for i := range v.Len() {
			if e.brief == nil || !e.concealed[v.Index(i).Interface()] {
				n.Content = append(n.Content, e.value(v.Index(i), t))
			}
		}
	}
	if t.single && len(n.Content) == 1 {
		return n.Content[0]
	}
	return n
}

// mapping encodes a mapping with arbitrary names.
func (e encoder) mapping(v reflect.Value, t Tag) *yaml.Node {
	names := map[string]bool{}
	for _, name := range v.MapKeys() {
		names[name.String()] = true
	}
	n := &yaml.Node{}
	_ = n.Encode(names) // sorted
	for i := 0; i < len(n.Content); i += 2 {
		name := reflect.ValueOf(n.Content[i].Value)
		n.Content[i+1] = e.value(v.MapIndex(name), t)
		if v.CanAddr() {
			e.restore(n.Content[i+1], Entry{v.Addr().Interface(), name.String()}, t)
		}
		if e.conceals(v) {
			n.Content[i].Value = "not shown, " + e.brief(name.String())
		}
	}
	return n
}

// fields encodes a form, in its short form if that says all.
func (e encoder) fields(v reflect.Value) *yaml.Node {
	if i, ok := shortField(v); ok {
		return e.value(v.Field(i), TagOf(v.Type().Field(i)))
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if FieldName(field) == "" || omits(field, v.Field(i)) {
			continue
		}
		t := TagOf(field)
		if strings.Contains(t.hidden, "{name}") {
			t.hidden = strings.ReplaceAll(t.hidden, "{name}", v.FieldByName("Name").String())
		}
		value := e.value(v.Field(i), t)
		isDefault := value.Kind != yaml.ScalarNode && len(value.Content) == 0
		if value.Kind == yaml.ScalarNode && t.Default != nil {
			isDefault = value.Value == *t.Default
		}
		if e.brief == nil || !isDefault {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: FieldName(field)}, value)
		}
	}
	return n
}

// omits reports whether a field with this value is left out.
func omits(field reflect.StructField, v reflect.Value) bool {
	isEmpty := v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
	return isEmpty && strings.HasSuffix(field.Tag.Get("yaml"), ",omitempty")
}

// shortField returns the field that the short form of v has, if v is written so: that field has no name of its own, or no
// other is given.
func shortField(v reflect.Value) (index int, ok bool) {
	if index, ok = ShortOf(v.Type()); !ok {
		return 0, false
	}
	if FieldName(v.Type().Field(index)) == "" {
		return index, !v.Field(index).IsZero()
	}
	for i := range v.NumField() {
		if i != index && !omits(v.Type().Field(i), v.Field(i)) {
			return 0, false
		}
	}
	return index, true
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
		names = append(names, of[i].Value)
		values[of[i].Value] = oneLine(of[i+1])
	}
	return names, values
}

// leastHidden is the minimum length of values that are recognized within a text.
const leastHidden = 4

// unfilled returns p with the values of variables replaced by their names, also within a text that Quote has escaped or cut: logs,
// the audit trail and the sender of a pushed configuration are told of problems.
func (r *Reader) unfilled(p Problem) Problem {
	escaped := func(value string) string { return strings.Trim(strconv.Quote(value), `"`) }
	for value, name := range r.variables {
		for _, text := range []*string{&p.What, &p.Instead} {
			*text = strings.ReplaceAll(*text, Quote(value), strconv.Quote(name))
			if len(value) >= leastHidden {
				*text = strings.NewReplacer(value, name, escaped(value), name).Replace(*text)
			}
			for n := min(len(value), mostQuoted); n >= leastHidden && strings.Contains(*text, cutMark); n-- {
				*text = strings.ReplaceAll(*text, escaped(value[:n])+cutMark, name+cutMark)
			}
		}
	}
	return p
}
