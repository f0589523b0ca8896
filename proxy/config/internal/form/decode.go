package form

import (
	"cmp"
	"reflect"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// A decoder decodes the nodes of one file into forms. It continues after a problem, so that
// all are found at once.
type decoder struct {
	*Reader
	file   string
	left   int      // values that may still be decoded
	around []around // the form that is being decoded, and those around it, the outermost first
}

// value decodes n into v, which must be addressable, and records its location under the
// pointer to v.
func (d *decoder) value(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	p.Position = d.at(n)
	d.locations[v.Addr().Interface()] = p
	if !d.budget(p) {
		return
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		d.Add(p, "has the tag "+n.Tag, "write the value without a tag")
		d.absent(p, v, nil)
	case d.odd(n, p): // reported
	case isNull(n):
		d.Add(p, "has no value", "give it one, or leave it out")
		d.absent(p, v, nil)
	default:
		d.decode(n, p, v, t)
	}
}

// decode decodes n, which has a value, into v.
func (d *decoder) decode(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	d.locations[v.Addr().Interface()] = p
	if v.Kind() == reflect.Pointer {
		d.pointer(n, p, v, t)
		return
	}
	if n.Kind == yaml.ScalarNode && quoted(n) && strings.Contains(n.Value, "${") {
		d.Written[v.Addr().Interface()] = n.Value // of a short form too, before its field
	}
	if short, ok := ShortOf(v.Type()); ok && n.Kind != yaml.MappingNode {
		d.value(n, p, v.Field(short), TagOf(v.Type().Field(short)))
		d.absent(p, v, nil)
		return
	}
	d.kind(n, p, v, t)
}

// pointer decodes n into what v points to. It stays nil if n has a problem as a whole, so that nothing is reported of its
// fields.
func (d *decoder) pointer(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	before := len(d.problems)
	made := reflect.New(v.Type().Elem())
	d.decode(n, p, made.Elem(), t)
	if n.Kind == yaml.MappingNode || len(d.problems) == before {
		v.Set(made)
	}
}

// budget reports whether one more value may be decoded, and reports a problem the first
// time that it may not.
func (d *decoder) budget(p Location) bool {
	d.left--
	if d.left == -1 {
		d.Add(p, "more values than a config may have", "use fewer aliases")
	}
	return d.left >= 0
}

// kind decodes n by the type of v.
func (d *decoder) kind(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	if of := textOf(v); of != nil {
		if kind, _ := of.Wanted(); kind != "" {
			d.parsed(n, p, of)
		} else {
			d.text(n, p, v, t)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		d.text(n, p, v, t)
	case reflect.Int, reflect.Int64:
		d.number(n, p, v, t)
	case reflect.Bool:
		d.boolean(n, p, v)
	case reflect.Slice:
		d.list(n, p, v, t)
	case reflect.Map:
		d.mapping(n, p, v, t)
	case reflect.Struct:
		d.fields(n, p, v)
	}
}

// fields decodes a mapping into a struct.
func (d *decoder) fields(n *yaml.Node, p Location, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.Add(p, "want a mapping, got "+kindName(n), "write "+strings.Join(FieldNames(v.Type()), ", ")+" below it, each with a colon")
		d.absent(p, v, nil)
		return
	}
	d.around = append(d.around, around{v.Type(), p.Path})
	seen := map[string]bool{}
	pairs := d.indent(d.pairs(n, p), v.Type(), p)
	for _, pair := range pairs {
		name, value := pair.key.Value, pair.value
		if _, known := FieldIndex(v.Type(), name); !known {
			name, value = d.unknown(pairs, pair, p)
		}
		index, ok := FieldIndex(v.Type(), name)
		if !ok {
			continue
		}
		seen[name] = true
		at := Location{Position: d.at(pair.key), name: pair.key, Path: join(p.Path, name)}
		d.value(value, at, v.Field(index), TagOf(v.Type().Field(index)))
	}
	d.around = d.around[:len(d.around)-1]
	d.absent(p, v, seen)
}

// absent sets the defaults of fields that are not in seen, and reports missing required
// ones. A nil seen means the short form, where nothing is required.
func (r *Reader) absent(p Location, v reflect.Value, seen map[string]bool) {
	if v.Kind() != reflect.Struct {
		return
	}
	for field, f := range v.Fields() {
		name, t := FieldName(field), TagOf(field)
		if name == "" || seen[name] {
			continue
		}
		at := Location{Position: p.Position, Path: join(p.Path, name)}
		if _, ok := r.locations[f.Addr().Interface()]; ok {
			continue // the short form has filled it
		}
		r.locations[f.Addr().Interface()] = at
		switch {
		case t.required && seen != nil && r.meant[at.Path]: // under another name
		case t.required && seen != nil:
			r.Add(p, "has no "+name, "write "+name+": below it")
		case t.Default != nil:
			standard := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: *t.Default}
			(&decoder{Reader: r, file: at.File, left: 2}).kind(standard, at, f, t)
		case f.Kind() == reflect.Struct:
			r.absent(at, f, nil)
		}
	}
}

// list decodes a list, or a single entry without brackets: a text, or an entry in its short form.
func (d *decoder) list(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	of := v.Type().Elem()
	isForm := of.Kind() == reflect.Pointer
	instead, empty := "write [one, two], or one value", t.empty
	if isForm {
		t, instead = Tag{}, `start each entry with "- "`
	}
	nodes := []*yaml.Node{n}
	_, isShort := ShortOf(of)
	switch {
	case n.Kind == yaml.SequenceNode:
		nodes = n.Content
	case n.Kind == yaml.MappingNode, isForm && !isShort:
		d.Add(p, "want a list, got "+kindName(n), instead)
		return
	}
	if len(nodes) > 0 {
		v.Set(reflect.MakeSlice(v.Type(), len(nodes), len(nodes)))
	} else if empty != "" {
		d.addLate(p, empty)
	}
	kept := v.Slice(0, 0)
	for i, c := range nodes {
		at := p
		if n.Kind == yaml.SequenceNode {
			at = Location{Path: p.Path + "[" + strconv.Itoa(i) + "]"}
		}
		d.value(c, at, v.Index(i), t)
		if !isForm || !v.Index(i).IsNil() { // of a form with a problem as a whole nothing is left
			kept = reflect.Append(kept, v.Index(i))
		}
	}
	v.Set(kept)
}

// mapping decodes a mapping with arbitrary names.
func (d *decoder) mapping(n *yaml.Node, p Location, v reflect.Value, t Tag) {
	if n.Kind != yaml.MappingNode {
		d.Add(p, "want a mapping, got "+kindName(n), "write NAME: VALUE below it")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	if v.Type().Elem().Implements(reflect.TypeFor[Numbered]()) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if name := n.Content[i]; name.ShortTag() == "!!int" && whole.MatchString(name.Value) {
				name.Tag = "!!str"
			}
		}
	}
	for _, pair := range d.pairs(n, p) {
		elem := reflect.New(v.Type().Elem()).Elem()
		name := pair.key.Value
		at := Location{name: pair.key, Path: join(p.Path, name)}
		if d.odd(pair.key, Location{Position: d.at(pair.key), Path: p.Path}) {
			name = oddName.ReplaceAllString(name, "")
		}
		before, pointer, entry := len(d.problems), elem.Addr().Interface(), Entry{v.Addr().Interface(), name}
		d.value(pair.value, at, elem, Tag{hidden: t.hidden, empty: t.empty})
		d.Alias(entry, pointer)
		if elem.Kind() == reflect.String && len(d.problems) == before || elem.Kind() == reflect.Pointer && !elem.IsNil() {
			v.SetMapIndex(reflect.ValueOf(name), elem)
		}
	}
}

// Numbered is a form in a mapping whose names may be whole numbers, such as statuses.
type Numbered interface{ Numbered() }

// A pair is a name and a value of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs returns the entries of the mapping n, followed by those of its merge keys (<<) that
// n does not override.
func (d *decoder) pairs(n *yaml.Node, p Location) []pair {
	var pairs []pair
	var merged []*yaml.Node
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := Location{Position: d.at(key), Path: p.Path}
		switch line, doubled := first[key.Value]; {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.Add(at, "a name must be text", "put it in quotes")
		case doubled:
			d.Add(at, strconv.Quote(key.Value)+" is given twice, first on line "+strconv.Itoa(line), "keep one")
		default:
			first[key.Value] = key.Line
			pairs = append(pairs, pair{key, value})
		}
	}
	for _, m := range merged {
		for _, pair := range d.merge(m, p) {
			if _, own := first[pair.key.Value]; !own {
				first[pair.key.Value] = pair.key.Line
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

// merge returns the entries of a merge key: of one mapping or of several, of which the
// earlier take precedence. Merge keys in a merged mapping are not resolved.
func (d *decoder) merge(n *yaml.Node, p Location) []pair {
	sources := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		sources = n.Content
	}
	var pairs []pair
	for _, s := range sources {
		at := Location{Position: d.at(s), Path: p.Path}
		if s.Kind == yaml.AliasNode {
			s = s.Alias
		}
		if s.Kind != yaml.MappingNode {
			d.Add(at, "<< wants a mapping, got "+kindName(s), "write <<: *NAME of a mapping")
			continue
		}
		for i := 0; i+1 < len(s.Content); i += 2 {
			if !d.budget(at) {
				return pairs
			}
			if s.Content[i].ShortTag() == "!!merge" {
				d.Add(at, "what is merged merges itself", "merge both: <<: [*A, *B]")
				continue
			}
			pairs = append(pairs, pair{s.Content[i], s.Content[i+1]})
		}
	}
	return pairs
}

// at returns the position of n.
func (d *decoder) at(n *yaml.Node) Position {
	return Position{File: d.file, Line: n.Line, Column: n.Column}
}

// join adds a name to the path of a field.
func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// isNull reports whether n is written without a value.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kindName describes the kind of n for an operator.
func kindName(n *yaml.Node) string {
	kind := map[yaml.Kind]string{yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}[n.Kind]
	scalar := map[string]string{"!!int": "a number", "!!float": "a number", "!!bool": "true or false", "!!timestamp": "a date"}[n.ShortTag()]
	return cmp.Or(kind, scalar, "text")
}
