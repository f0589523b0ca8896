package convert

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A document is a configuration of Weir in the making, in the order in which it is written.
type document struct {
	program, file string
	head          []Note // about the whole file
	left          []Note // of the other file: what nothing carried over and no other note is about
	sections      mapping
	keys          []*entry
	lists         []*entry
	limits        []*entry
	upstreams     []*entry
	routes        []*entry
	taken         map[string]bool // KIND/NAME
}

// An entry is a named key, list, limit, upstream or route.
type entry struct {
	name   string
	fields mapping
	notes  []Note // written above it
}

// A mapping is the fields of a YAML mapping in order.
type mapping []field

// A field is a name with a value that is written as it is.
type field struct{ name, value string }

// set adds a field, unless its value is empty.
func (m *mapping) set(name, value string) {
	if value != "" {
		*m = append(*m, field{name, value})
	}
}

// flow returns the mapping on one line; "" for one without fields.
func (m mapping) flow() string {
	if len(m) == 0 {
		return ""
	}
	var parts []string
	for _, f := range m {
		parts = append(parts, f.name+": "+f.value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func newDocument(program, file string) *document {
	return &document{program: program, file: file, taken: map[string]bool{}}
}

// wrong returns an error about a line of the file.
func (d *document) wrong(line int, what, expected string) error {
	return &Error{File: d.file, Line: line, What: what, Expected: expected}
}

// note adds a note about the whole result, once.
func (d *document) note(line int, what, instead string) {
	if n := (Note{Line: line, What: what, Instead: instead}); !slices.Contains(d.head, n) {
		d.head = append(d.head, n)
	}
}

// note adds a note that is written above the entry.
func (e *entry) note(line int, what, instead string) {
	e.notes = append(e.notes, Note{Line: line, What: what, Instead: instead})
}

// unique returns text as a name that no other entry of this kind has.
func (d *document) unique(kind, text string) string {
	base := strings.Trim(notInName.ReplaceAllString(text, "-"), "-_")
	if base == "" || base[0] >= '0' && base[0] <= '9' || reserved.MatchString(base) || meant.MatchString(base) {
		base = strings.TrimSuffix(kind+"-"+base, "-")
	}
	name := base
	for i := 2; d.taken[kind+"/"+name]; i++ {
		name = base + "-" + strconv.Itoa(i)
	}
	d.taken[kind+"/"+name] = true
	return name
}

// reserved matches what means something else where a name can stand.
var reserved = regexp.MustCompile(`^(?:none|echo|client_ip|host|method|global)$`)

// notInName matches what the name of a limit cannot have. One at the top of the file has no
// dot.
var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// add returns the entry of all with these fields; there is one for all that need the same.
func (d *document) add(all *[]*entry, kind, name string, fields mapping) *entry {
	for _, e := range *all {
		if e.fields.flow() == fields.flow() {
			return e
		}
	}
	e := &entry{name: d.unique(kind, name), fields: fields}
	*all = append(*all, e)
	return e
}

// addKey adds a named key and returns its name.
func (d *document) addKey(name string, fields mapping) string {
	return d.add(&d.keys, "key", name, fields).name
}

// addLimit adds a limit at the top of the file.
func (d *document) addLimit(name string, fields mapping) *entry {
	l := &entry{name: d.unique("limit", name), fields: fields}
	d.limits = append(d.limits, l)
	return l
}

// mostConcurrent is the largest number of concurrent requests that a limit can have.
const mostConcurrent = 10_000

// leave adds what is left over.
func (d *document) leave(line int, what, instead string) {
	d.left = append(d.left, Note{Line: line, What: what, Instead: instead})
}

// leftoverNotes returns a note for all that is left over with the same Instead, in the order of their lines.
func (d *document) leftoverNotes() (notes []Note) {
	slices.SortStableFunc(d.left, func(a, b Note) int { return a.Line - b.Line })
	for _, l := range slices.Compact(d.left) {
		i := slices.IndexFunc(notes, func(n Note) bool { return n.Instead == l.Instead })
		if i < 0 {
			i = len(notes)
			notes = append(notes, Note{Line: l.Line, What: "not carried over (with their lines):", Instead: l.Instead})
		} else {
			notes[i].What += ","
		}
		notes[i].What += " " + l.What + " (" + strconv.Itoa(l.Line) + ")"
	}
	return notes
}

// concurrent returns how many requests may be in progress.
func (d *document) concurrent(n int64, line int) string {
	if n > mostConcurrent {
		d.note(line, strconv.FormatInt(n, 10)+" requests in progress are more than a limit has", "10000 is written")
		n = mostConcurrent
	}
	return strconv.FormatInt(n, 10)
}

// addAddresses adds a list of client addresses and returns its name.
func (d *document) addAddresses(name string, networks []string, action string) string {
	return d.addList(name, mapping{{"key", "client_ip"}, {"values", texts(networks)}, {"action", action}})
}

// addList adds a list and returns its name.
func (d *document) addList(name string, fields mapping) string {
	return d.add(&d.lists, "list", name, fields).name
}

// addUpstream adds an upstream and returns its name.
func (d *document) addUpstream(u *entry) string {
	added := d.add(&d.upstreams, "upstream", u.name, u.fields)
	if len(added.notes) == 0 {
		added.notes = u.notes
	}
	return added.name
}

// addRoute adds a route.
func (d *document) addRoute(name string, fields mapping) *entry {
	r := &entry{name: d.unique("route", name), fields: fields}
	d.routes = append(d.routes, r)
	return r
}

// inName matches what can be the name of an entry.
var inName = regexp.MustCompile(`[A-Za-z0-9_-]+`)

// named returns those of entries whose names are in the fields of others.
func named(entries []*entry, others ...*entry) []*entry {
	words := map[string]bool{}
	for _, o := range others {
		for _, word := range inName.FindAllString(o.fields.flow(), -1) {
			words[word] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return !words[e.name] })
}

// prune takes out what no route needs.
func (d *document) prune() {
	d.limits, d.lists = named(d.limits, d.routes...), named(d.lists, d.routes...)
	d.upstreams = named(d.upstreams, d.routes...)
	users := slices.Concat(d.limits, d.lists)
	d.keys = named(d.keys, append(users, named(d.keys, users...)...)...) // with those that others join
}

// result returns the document as YAML, with all notes.
func (d *document) result() Result {
	d.prune()
	byAddress := func(e *entry) bool { return strings.Contains(e.fields.flow(), "client_ip") }
	if slices.ContainsFunc(slices.Concat(d.keys, d.limits), byAddress) {
		d.note(0, d.program+" counts each IPv6 address by itself, Weir the networks that clients have, of 64 bits",
			"write client_ip: {ipv6_prefix: 128} for single addresses")
	}
	var w writer
	w.line("# Limits of " + d.file + ", converted from " + d.program + ". weir check reports what is left to do.")
	w.notes(d, "", d.head)
	for _, f := range d.sections {
		w.line(f.name + ": " + f.value)
	}
	machine := w.text.Len()
	w.section(d, "keys", d.keys)
	w.section(d, "lists", d.lists)
	w.section(d, "limits", d.limits)
	w.section(d, "upstreams", d.upstreams)
	w.line("routes:")
	for _, r := range d.routes {
		w.notes(d, "  ", r.notes)
		w.line("  - name: " + r.name)
		for _, f := range r.fields {
			w.line("    " + f.name + ": " + f.value)
		}
	}
	w.notes(d, "", d.leftoverNotes())
	return Result{YAML: []byte(w.text.String()), Limits: []byte(w.text.String()[machine:]),
		Notes: w.written, file: d.file}
}

// A writer writes a document.
type writer struct {
	text    strings.Builder
	written []Note
}

func (w *writer) line(text string) { w.text.WriteString(text + "\n") }

// section writes named entries, each on a line, unless there are none.
func (w *writer) section(d *document, name string, entries []*entry) {
	if len(entries) == 0 {
		return
	}
	w.line(name + ":")
	for _, e := range entries {
		w.notes(d, "  ", e.notes)
		w.line("  " + e.name + ": " + e.fields.flow())
	}
}

// notes writes notes as comments, each on a line.
func (w *writer) notes(d *document, indent string, notes []Note) {
	for _, n := range notes {
		w.line(indent + "# " + n.text(d.file))
	}
	w.written = append(w.written, notes...)
}

// visible replaces what would end a comment.
func visible(r rune) rune {
	if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
		return ' '
	}
	return r
}

// plain matches text that needs no quotes in YAML, also inside of brackets.
var plain = regexp.MustCompile(`^(?:[A-Za-z/][A-Za-z0-9_./*-]*|[1-9][0-9]*/[0-9]*[a-z]+)$`)

// meant matches text that YAML takes for something else than text.
var meant = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|y|n|null)$`)

// text returns a value as YAML text.
func text(value string) string {
	if plain.MatchString(value) && !meant.MatchString(value) {
		return value
	}
	return strings.ReplaceAll(strconv.Quote(value), "$", "$$") // $ begins the name of an environment variable
}

// texts returns values as a YAML list; "" if there are none.
func texts(values []string) string {
	if len(values) == 0 {
		return ""
	}
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, text(v))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
