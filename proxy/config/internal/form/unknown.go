package form

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// An around is a form within which others are decoded.
type around struct {
	of   reflect.Type
	path string
}

// unknown reports the field of pair, which the form at p with all pairs does not know. It returns the name and the value
// as which it is decoded nevertheless, so that nothing is reported that only follows from the wrong name; "" for none.
func (d *decoder) unknown(all []pair, pair pair, p Location) (meant string, value *yaml.Node) {
	name, of := pair.key.Value, d.around[len(d.around)-1].of
	at := Location{Position: d.at(pair.key), Path: p.Path}
	if i := oddName.FindStringIndex(name); i != nil && !quoted(pair.key) {
		d.addOdd(at, name, i[0])
		meant, text, together := strings.Cut(oddName.ReplaceAllString(name, ""), ":")
		if !together {
			return meant, pair.value
		}
		return meant, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: pair.key.Line, Column: pair.key.Column}
	}
	near, far := nearest(name, FieldNames(of))
	instead := cmp.Or(d.joined(p.Path, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{pair.key, pair.value}}), switchedOff(pair, of, p.Path))
	if instead == "" && far > 1 {
		instead = cmp.Or(partly(name, FieldNames(of)), d.elsewhere(pair))
	}
	d.Add(at, "unknown field "+strconv.Quote(name), cmp.Or(instead, Suggest(name, FieldNames(of))))
	if instead != "" || has(all, near) {
		return "", nil
	}
	return near, pair.value
}

// has reports whether one of pairs is called name.
func has(pairs []pair, name string) bool {
	return slices.ContainsFunc(pairs, func(p pair) bool { return p.key.Value == name })
}

// indent returns the pairs of a form of type of. Those that belong below a field without a value are moved there: they
// are not indented, and the first of them is reported.
func (d *decoder) indent(pairs []pair, of reflect.Type, p Location) []pair {
	for i := range pairs {
		index, ok := FieldIndex(of, pairs[i].key.Value)
		if !ok || !isNull(pairs[i].value) {
			continue
		}
		inner, begin, _ := within(of.Field(index).Type)
		moved := &yaml.Node{Kind: yaml.MappingNode}
		for _, p := range pairs {
			if belongs(p, inner, of) && begin != "{NAME: {" {
				moved.Content = append(moved.Content, p.key, p.value)
			}
		}
		if len(moved.Content) == 0 {
			continue
		}
		name := moved.Content[0]
		moved.Line, moved.Column = name.Line, name.Column
		instead := "indent it, so that it is below " + pairs[i].key.Value
		if begin == "[{" {
			instead += `, and begin the entry with "- "`
			moved = &yaml.Node{Kind: yaml.SequenceNode, Line: name.Line, Column: name.Column, Content: []*yaml.Node{moved}}
		}
		d.Add(Location{Position: d.at(name), Path: p.Path}, "unknown field "+strconv.Quote(name.Value), instead)
		pairs[i].value = moved
		return d.indent(slices.DeleteFunc(pairs, func(p pair) bool { return belongs(p, inner, of) }), of, p)
	}
	return pairs
}

// belongs reports whether the form inner knows the field of a pair, and the form of does not.
func belongs(p pair, inner, of reflect.Type) bool {
	_, there := FieldIndex(inner, p.key.Value)
	_, here := FieldIndex(of, p.key.Value)
	return there && !here
}

// partly returns those of choices that have name as one of their words: "did you mean add_prefix or strip_prefix?", or "".
func partly(name string, choices []string) string {
	var found []string
	for _, c := range choices {
		if slices.Contains(strings.Split(c, "_"), name) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "did you mean " + either(found) + "?"
}

// joined returns what to write instead of the mapping n, if it is NAME: VALUE and a text NAME:VALUE is meant, or "".
func (d *decoder) joined(path string, n *yaml.Node) string {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[1].Kind != yaml.ScalarNode {
		return ""
	}
	_, instead := d.hint(path, n.Content[0].Value+": "+n.Content[1].Value)
	return instead
}

// switchedOff returns what to write instead of enabled and disabled, or "".
func switchedOff(pair pair, of reflect.Type, path string) string {
	name, value := pair.key.Value, pair.value.Value
	switch {
	case name != "enabled" && name != "enable" && name != "disabled":
		return ""
	case (value == "true") != (name == "disabled"):
		return "leave it out: what is written is in use"
	}
	if index, ok := FieldIndex(of, "mode"); ok && slices.Contains(TagOf(of.Field(index)).Enum, "off") {
		return "write mode: off"
	}
	return "leave " + cmp.Or(path[strings.LastIndex(path, ".")+1:], "it") + " out"
}

// elsewhere returns what to write if the field of pair, which the form that is being decoded does not know, belongs to
// a form around it, or below one of these: the nearest. It returns "" if there is none, or too many.
func (d *decoder) elsewhere(pair pair) string {
	const most = 3
	here := d.around[len(d.around)-1].path
	for i, a := range slices.Backward(d.around) {
		where := ""
		switch {
		case i == len(d.around)-1:
		case a.path == "":
			where = " at the top of the file"
		default:
			where = " in " + a.path
		}
		if _, ok := FieldIndex(a.of, pair.key.Value); ok {
			d.meant[join(a.path, pair.key.Value)] = true
			beside, _, _ := strings.Cut(strings.TrimPrefix(here[len(a.path):], "."), ".")
			beside, _, _ = strings.Cut(beside, "[")
			return "write it" + where + ", beside " + beside
		}
		if all := below(a.of, pair); len(all) > most {
			return ""
		} else if len(all) > 0 {
			return "write " + either(all) + where
		}
	}
	return ""
}

// below returns, as YAML on one line, the field of pair in each of the nearest forms below a form of type of that have it.
func below(of reflect.Type, pair pair) (found []string) {
	type open struct {
		of          reflect.Type
		begin, rest string
	}
	for level := []open{{of: of}}; len(level) > 0 && len(found) == 0; {
		var next []open
		for _, o := range level {
			for field := range o.of.Fields() {
				inner, begin, rest := within(field.Type)
				if inner == nil || FieldName(field) == "" {
					continue
				}
				o := open{inner, o.begin + FieldName(field) + ": " + begin, rest + o.rest}
				if index, ok := FieldIndex(inner, pair.key.Value); ok {
					found = append(found, o.begin+pair.key.Value+": "+shown(pair.value, TagOf(inner.Field(index)))+o.rest)
				}
				next = append(next, o)
			}
		}
		level = next
	}
	return found
}

// within returns the form that a value of type t is or has, and the brackets around its fields; nil if it has none.
func within(t reflect.Type) (of reflect.Type, begin, rest string) {
	begin, rest = "{", "}"
	switch t.Kind() {
	case reflect.Slice:
		begin, rest, t = "[{", "}]", t.Elem()
	case reflect.Map:
		begin, rest, t = "{NAME: {", "}}", t.Elem()
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, "", ""
	}
	return t, begin, rest
}

// shown returns a short value as it is written, for a field with the tag t; "..." in place of others.
func shown(n *yaml.Node, t Tag) string {
	const most = 40
	switch {
	case n.Kind != yaml.ScalarNode || t.hidden != "" || isNull(n) || len(n.Value) > most:
		return "..."
	case quoted(n):
		return strconv.Quote(n.Value)
	}
	return n.Value
}

const (
	oddSpaces = `\x{00A0}\x{2000}-\x{200B}\x{202F}\x{3000}`
	oddQuotes = `“”„‟‘’‚‛`
	oddDashes = `‐‑–—−`
)

// Characters that editors and chat programs put in the place of plain ones: in a name, around a text, and where YAML wants
// a space, a quote or a dash.
var (
	oddName   = regexp.MustCompile(`[` + oddSpaces + oddQuotes + `]|^[` + oddDashes + `]`)
	oddText   = regexp.MustCompile(`^[` + oddSpaces + `]|[` + oddSpaces + `]$|^[` + oddQuotes + `].*[` + oddQuotes + `]$`)
	oddSyntax = regexp.MustCompile(`(?:^|[:,{\[-]) *([` + oddSpaces + oddQuotes + oddDashes + `])`)
)

// odd reports a text or name without quotes, at p, that has a character in the place of a plain space or quote.
func (d *decoder) odd(n *yaml.Node, p Location) bool {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return false
	}
	i := oddText.FindStringIndex(n.Value)
	if i != nil {
		d.addOdd(p, n.Value, i[0])
	}
	return i != nil
}

// addOdd reports the character at a byte of text, which stands at p.
func (d *decoder) addOdd(p Location, text string, at int) {
	r, _ := utf8.DecodeRuneInString(text[at:])
	p.Column += utf8.RuneCountInString(text[:at])
	what, instead := describe(r)
	d.Add(p, what, instead)
}

// describe returns what is wrong with r, one of these characters, and what to write instead.
func describe(r rune) (what, instead string) {
	switch {
	case strings.ContainsRune("\u00A0\u2007\u202F", r):
		return fmt.Sprintf("has a no-break space (U+%04X)", r), "write a plain space"
	case r == '\u200B' || unicode.IsSpace(r):
		return fmt.Sprintf("has a space that is no plain one (U+%04X)", r), "write a plain space"
	case strings.ContainsRune(oddDashes, r):
		return fmt.Sprintf("has a long dash, %c", r), "write -"
	}
	return fmt.Sprintf("has a curly quote, %c", r), `write a straight one, " or ', or none`
}

// Suggest returns what to write instead of word: the nearest choice if one is similar, else
// all of them.
func Suggest(word string, choices []string) string {
	if best := Near(word, choices); best != "" || len(choices) == 0 {
		return best
	}
	return "write " + either(choices)
}

// Near returns "did you mean X?" with the nearest choice; "" if none is similar.
func Near(word string, choices []string) string {
	best, _ := nearest(word, choices)
	if best == "" {
		return ""
	}
	return "did you mean " + best + "?"
}

// nearest returns the choice that is nearest to word and its distance; "" if none is similar.
func nearest(word string, choices []string) (best string, least int) {
	least = 1 + max(1, len(word)/3)
	for _, c := range choices {
		if n := distance(strings.ToLower(word), strings.ToLower(c)); n < min(least, len(word)) {
			best, least = c, n
		}
	}
	return best, least
}

// either lists choices: a, b or c.
func either(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// distance returns the edit distance (Levenshtein) of a and b: the number of characters to
// insert, delete, replace, or swap with their neighbor (optimal string alignment). It takes
// len(a) * len(b) steps, and is limited to the length of valid words.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	var before, above []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, above, row = above, row, slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above[j]+cost, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
