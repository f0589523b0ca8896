// Package convert translates the limits in the configurations of other programs into a
// configuration of Weir. It is pure: it reads one text and returns another, opens no file
// and dials nobody.
//
// Promised: the result is a configuration that weir check accepts. A limit in it admits the
// requests that the other program admits, or a note says what is different; one that would
// refuse others is in shadow mode. Whatever translates a directive, annotation or field marks
// it, and what has no mark is listed at the end. A route that the other program protects with
// something that Weir does not have answers 403, and its note is Lost. Notes stand in the
// result as comments, each with the line of the other file.
//
// Not promised: a complete proxy.
package convert

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxSize bounds the text that is read.
const maxSize = 16 << 20

// A Result is a configuration of Weir.
type Result struct {
	YAML   []byte
	Limits []byte // the part of YAML that has no sections of the machine
	Notes  []Note // in the order in which they stand in YAML

	file string
}

// A Note says that a line of the other file is not carried over, or what is different.
type Note struct {
	Line    int // 0 if it is about the whole file
	What    string
	Instead string // what to do; may be empty
	Lost    bool   // access control is not carried over: the route below it answers 403
}

// text returns the note about a file on one line.
func (n Note) text(file string) string {
	text := place(file, n.Line) + ": " + n.What
	if n.Instead != "" {
		text += "; " + n.Instead
	}
	return strings.Map(visible, text)
}

// notes are in the order in which they are written.
type notes []Note

func (n *notes) add(line int, what, instead string) {
	*n = append(*n, Note{Line: line, What: what, Instead: instead})
}

// Lost returns what is said of access control that is not carried over, once each and in the order of YAML, as
// FILE:LINE: TEXT. It is empty if nothing is lost.
func (r Result) Lost() (all []string) {
	for _, n := range r.Notes {
		if n.Lost {
			all = view.AddNew(all, place(r.file, n.Line)+": "+strings.Map(visible, n.What))
		}
	}
	return all
}

// An Error says why a file cannot be read, and what was expected.
type Error struct {
	File     string
	Line     int // 0 if it is about the whole file
	What     string
	Expected string
}

func (e *Error) Error() string {
	return place(e.File, e.Line) + ": " + e.What + "; " + e.Expected
}

// place returns FILE:LINE, or FILE for line 0.
func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// converters returns what fills a document from the text of each program's file.
func converters() map[string]func(d *document, data []byte) {
	return map[string]func(d *document, data []byte){
		"nginx":         convertNginx,
		"ingress-nginx": convertIngress,
		"ratelimit":     convertRatelimit,
	}
}

// Convert converts the configuration of a program, one of converters. Its file is called name in
// notes and errors. A file that is not one of that program is an *Error.
func Convert(program, name string, r io.Reader) (Result, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return Result{}, fmt.Errorf("read %s: %w", name, err)
	}
	d := newDocument(program, name)
	if len(data) > maxSize {
		d.wrong(0, "is larger than 16 MiB", "expected a configuration of "+program)
	} else {
		converters()[program](d, data)
	}
	if d.fault != nil {
		return Result{}, d.fault
	}
	return d.result(), nil
}

// A document is a configuration of Weir in the making, in the order in which it is written.
type document struct {
	program, file string
	fault         *Error // the first one; nil if the file can be read
	head          notes  // about the whole file
	left          notes  // of the other file: what nothing carried over and no other note is about
	sections      mapping
	entries       map[string][]*entry // by kind: key, list, limit, upstream or route
	taken         map[string]bool     // KIND/NAME
}

// An entry is a named key, list, limit, upstream or route.
type entry struct {
	name   string
	fields mapping
	notes  notes // written above it
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

// setDuration sets a field to d, if it is not 0.
func (m *mapping) setDuration(name string, d time.Duration) {
	if d != 0 {
		m.set(name, limiter.FormatDuration(d))
	}
}

// flow returns the mapping on one line; "" for one without fields.
func (m mapping) flow() string {
	if len(m) == 0 {
		return ""
	}
	parts := view.Each(m, func(f field) string { return f.name + ": " + f.value })
	return "{" + strings.Join(parts, ", ") + "}"
}

func newDocument(program, file string) *document {
	return &document{program: program, file: file, entries: map[string][]*entry{}, taken: map[string]bool{}}
}

// wrong notes that a line of the file cannot be read.
func (d *document) wrong(line int, what, expected string) {
	if d.fault == nil {
		d.fault = &Error{File: d.file, Line: line, What: what, Expected: expected}
	}
}

// note adds a note about the whole result, once.
func (d *document) note(line int, what, instead string) {
	d.head = view.AddNew(d.head, Note{Line: line, What: what, Instead: instead})
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

// add adds an entry of a kind.
func (d *document) add(kind, name string, fields mapping) *entry {
	e := &entry{name: d.unique(kind, name), fields: fields}
	d.entries[kind] = append(d.entries[kind], e)
	return e
}

// share returns the entry of a kind with these fields; there is one for all that need the same.
func (d *document) share(kind, name string, fields mapping) *entry {
	for _, e := range d.entries[kind] {
		if e.fields.flow() == fields.flow() {
			return e
		}
	}
	return d.add(kind, name, fields)
}

// mostConcurrent is the largest number of concurrent requests that a limit can have.
const mostConcurrent = 10_000

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
	fields := mapping{{"key", "client_ip"}, {"values", texts(networks)}, {"action", action}}
	return d.share("list", name, fields).name
}

// joinKeys returns the key that joins several, by their names: global for none.
func (d *document) joinKeys(name string, keys []string) string {
	switch len(keys) {
	case 0:
		return "global"
	case 1:
		return keys[0]
	}
	return d.share("key", name, mapping{{"join", texts(keys)}}).name
}

// routeFields returns the fields of routes to a destination, whose upstream it adds; answer is what they respond to
// all requests in its place, "" for nothing.
func (d *document) routeFields(to nginxDestination, answer string) mapping {
	if answer != "" {
		return mapping{{"respond", answer}}
	}
	if to.upstream == nil {
		return to.fields
	}
	u := d.share("upstream", to.upstream.name, to.upstream.fields)
	if len(u.notes) == 0 {
		u.notes = to.upstream.notes
	}
	return append(mapping{{"upstream", u.name}}, to.fields...)
}

// inName matches what can be the name of an entry.
var inName = regexp.MustCompile(`[A-Za-z0-9_-]+`)

// named returns the entries of a kind whose names are in the fields of others.
func (d *document) named(kind string, others []*entry) []*entry {
	words := map[string]bool{}
	for _, o := range others {
		for _, word := range inName.FindAllString(o.fields.flow(), -1) {
			words[word] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(d.entries[kind]), func(e *entry) bool { return !words[e.name] })
}

// prune takes out what no route needs.
func (d *document) prune() {
	for _, kind := range []string{"limit", "list", "upstream"} {
		d.entries[kind] = d.named(kind, d.entries["route"])
	}
	users := slices.Concat(d.entries["limit"], d.entries["list"])
	d.entries["key"] = d.named("key", append(users, d.named("key", users)...)) // with those that others join
}

// result returns the document as YAML, with all notes.
func (d *document) result() Result {
	d.prune()
	byAddress := func(e *entry) bool { return strings.Contains(e.fields.flow(), "client_ip") }
	if slices.ContainsFunc(slices.Concat(d.entries["key"], d.entries["limit"]), byAddress) {
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
	for _, kind := range []string{"key", "list", "limit", "upstream"} {
		w.section(d, kind)
	}
	w.line("routes:")
	for _, r := range d.entries["route"] {
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

// section writes the entries of a kind, each on a line, unless there are none.
func (w *writer) section(d *document, kind string) {
	if len(d.entries[kind]) == 0 {
		return
	}
	w.line(kind + "s:")
	for _, e := range d.entries[kind] {
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

// text returns a value as YAML text; "" for none.
func text(value string) string {
	if value == "" || plain.MatchString(value) && !meant.MatchString(value) {
		return value
	}
	return strings.ReplaceAll(strconv.Quote(value), "$", "$$") // $ begins the name of an environment variable
}

// texts returns values as a YAML list; "" if there are none.
func texts(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return "[" + strings.Join(view.Each(values, text), ", ") + "]"
}
