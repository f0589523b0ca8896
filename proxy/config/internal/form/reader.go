// Package form decodes YAML into forms: structs whose tags hold the names of fields, their
// defaults and allowed values. It replaces environment variables, remembers where each value
// stands and how it was written, and collects all problems of all files. It does not know
// what the fields mean.
package form

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// MaxSize is the maximum size of a file, in bytes.
const MaxSize = 8 << 20

// MaxValues is the maximum number of values in a file after aliases are resolved, which
// bounds the work for a small file (billion laughs).
const MaxValues = 200_000

// An Env looks up an environment variable, like os.LookupEnv.
type Env func(name string) (value string, set bool)

// A Hint returns the kind of value that the field at path holds, and what to write instead
// of text: a number or another scalar that is not text, or NAME: VALUE in place of one text.
// The kind is empty for an ordinary text.
type Hint func(path, text string) (kind, instead string)

// A Location is where the value of a field stands.
type Location struct {
	Position
	Path string     // of the field: routes[0].limits[1].rate
	name *yaml.Node // before the value; nil in a list
}

// An Entry is the place of a text in a mapping at a pointer: it stands for a pointer to the text, which there is none of.
type Entry struct {
	Of   any
	Name string
}

// A Reader decodes the files of one configuration. It is not safe for concurrent use.
type Reader struct {
	env       Env
	hint      Hint
	problems  []Problem
	late      []Problem // of texts with a syntax of their own, which follow those of the kinds of values
	locations map[any]Location
	variables map[string]string // names of environment variables, by value
	meant     map[string]bool   // paths of fields that are probably there under another name, or in another place
	left      int               // values that all files together may still have
	together  bool

	Warnings []Problem
	Secrets  []Problem // that are written in a file
	Written  Written
	Uses     map[string]int // how often a field, without indexes, names an environment variable: NAME in FIELD
}

// NewReader returns a Reader that looks up variables in env.
func NewReader(env Env, hint Hint) *Reader {
	return &Reader{env: env, hint: hint, locations: map[any]Location{}, variables: map[string]string{}, Written: Written{}, Uses: map[string]int{}, meant: map[string]bool{}, left: MaxValues}
}

// Parse returns the only document of a file, called file in problems; nil after a problem.
func (r *Reader) Parse(file string, data []byte) *yaml.Node {
	return (&decoder{Reader: r, file: file}).parse(data)
}

// Decode decodes root, the document of a file, into form, a pointer to a struct. It reports
// whether the file has no more values than allowed.
func (r *Reader) Decode(file string, root *yaml.Node, form any) bool {
	d := &decoder{Reader: r, file: file, left: r.left}
	d.value(root, Location{}, reflect.ValueOf(form).Elem(), Tag{})
	if r.together {
		r.left = d.left
	}
	return d.left >= 0
}

// CountTogether makes MaxValues hold for all files together instead of for each.
func (r *Reader) CountTogether() { r.together = true }

// Exhausted reports whether the files together had more than MaxValues.
func (r *Reader) Exhausted() bool { return r.left < 0 }

// Add reports a problem at p.
func (r *Reader) Add(p Location, what, instead string) {
	r.problems = append(r.problems, r.unfilled(Problem{p.Position, p.Path, what, instead}))
}

// Wrong reports a problem with the value of the field at pointer.
func (r *Reader) Wrong(pointer any, what, instead string) {
	r.Add(r.locations[pointer], what, instead)
}

// WrongName reports a problem with the name before a value.
func (r *Reader) WrongName(pointer any, what, instead string) {
	r.Add(Location{Position: r.NameAt(pointer), Path: r.locations[pointer].Path}, what, instead)
}

// Warn adds a warning: the value is allowed, but probably a mistake.
func (r *Reader) Warn(pointer any, what, instead string) {
	p := r.locations[pointer]
	r.Warnings = append(r.Warnings, r.unfilled(Problem{p.Position, p.Path, what, instead}))
}

// Problems returns all problems so far, in the order in which they were found.
func (r *Reader) Problems() []Problem {
	r.problems, r.late = append(r.problems, r.late...), nil
	return r.problems
}

// Decoded returns how many problems there are with names and kinds of values, from which others may follow. They are the
// first of Problems.
func (r *Reader) Decoded() int { return len(r.problems) }

// Location returns where the value of the field at pointer stands, or would stand.
func (r *Reader) Location(pointer any) Location { return r.locations[pointer] }

// SetDefaults sets the fields of form, a pointer to a struct that no file has, to their
// defaults. Its fields stand at p.
func (r *Reader) SetDefaults(p Location, form any) { r.absent(p, reflect.ValueOf(form).Elem(), nil) }

// Alias lets the value at pointer, which no file has, stand where the one at of does, and be written as that is.
func (r *Reader) Alias(pointer, of any) {
	r.locations[pointer] = r.locations[of]
	if text, ok := r.Written[of]; ok {
		r.Written[pointer] = text
	}
}

// Given reports whether the field at pointer is written in a file.
func (r *Reader) Given(pointer any) bool { return r.locations[pointer].name != nil }

// Lacks reports whether the mapping at pointer surely has no entry called name: neither the mapping nor such an
// entry is there with a problem.
func (r *Reader) Lacks(pointer any, name string) bool {
	p := r.locations[pointer]
	return !r.meant[p.Path] && !slices.ContainsFunc(r.problems, func(q Problem) bool {
		return q.Path == join(p.Path, name) || q.Path == p.Path && q.Position == p.Position
	})
}

// NameAt returns the position of the name before a value, or of the value in a list.
func (r *Reader) NameAt(pointer any) Position {
	p := r.locations[pointer]
	if p.name != nil {
		p.Line, p.Column = p.name.Line, p.name.Column
	}
	return p.Position
}

// Valid reports whether no problem was found with the value at pointer.
func (r *Reader) Valid(pointer any) bool {
	p := r.locations[pointer]
	for _, q := range r.problems {
		below, under := strings.CutPrefix(q.Path, p.Path)
		if q.Position == p.Position || q.File == p.File && under && (below == "" || strings.ContainsAny(below[:1], ".[")) {
			return false
		}
	}
	return true
}

// dollar matches everything that could be meant as a variable, variable the valid syntax.
var (
	dollar   = regexp.MustCompile(`\$\$|\$\{[^}]*\}?|\$[A-Za-z0-9_]+`)
	variable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^${}]*))?\}$`)
	unquoted = regexp.MustCompile(`\$[{A-Za-z_]`)
	indexes  = regexp.MustCompile(`\[[0-9]+\]`)
)

// expand returns the value of a scalar with environment variables replaced: in quotes,
// ${NAME} is a variable, ${NAME:-text} one with a default if it is unset or empty, and $$ a
// dollar sign. Everything else that looks like a variable is a problem, so that a secret is
// not silently set to the text "$TOKEN". Values of variables are not expanded or parsed
// again, so they cannot add fields.
func (d *decoder) expand(n *yaml.Node, p Location) (string, bool) {
	if !quoted(n) {
		if unquoted.MatchString(n.Value) {
			d.Add(p, "environment variables are replaced only in quotes", `write "${NAME}", or "$$" for a dollar`)
			return "", false
		}
		return n.Value, true
	}
	ok := true
	s := dollar.ReplaceAllStringFunc(n.Value, func(s string) string {
		if s == "$$" {
			return "$"
		}
		m := variable.FindStringSubmatch(s)
		if m == nil {
			d.Add(p, fmt.Sprintf("%q is not the syntax of a variable", s), "write ${NAME} or ${NAME:-default}, or $$ for a dollar")
			ok = false
			return ""
		}
		d.Uses[m[1]+" in "+indexes.ReplaceAllString(p.Path, "")]++
		value, set := d.env(m[1])
		if value != "" {
			d.variables[value] = "${" + m[1] + "}"
		}
		switch {
		case m[2] != "" && value == "":
			return m[3]
		case !set:
			d.Add(p, "the environment variable "+m[1]+" is not set", "set it, or write ${"+m[1]+":-default}")
			ok = false
		}
		return value
	})
	return s, ok
}

// quoted reports whether n is quoted.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
}
