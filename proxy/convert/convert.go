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
	"maps"
	"slices"
	"strings"
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
			all = addNew(all, place(r.file, n.Line)+": "+strings.Map(visible, n.What))
		}
	}
	return all
}

// addNew appends those of more that all does not have.
func addNew[S ~[]E, E comparable](all S, more ...E) S {
	for _, m := range more {
		if !slices.Contains(all, m) {
			all = append(all, m)
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

// From returns the names of the programs whose files can be converted, sorted.
func From() []string { return slices.Sorted(maps.Keys(converters())) }

// Convert converts the configuration of a program, one of From. Its file is called name in
// notes and errors. A file that is not one of that program is an *Error.
func Convert(program, name string, r io.Reader) (Result, error) {
	convert := converters()[program]
	if convert == nil {
		return Result{}, fmt.Errorf("convert %s: not one of %q", program, From())
	}
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return Result{}, fmt.Errorf("read %s: %w", name, err)
	}
	d := newDocument(program, name)
	if len(data) > maxSize {
		d.wrong(0, "is larger than 16 MiB", "expected a configuration of "+program)
	} else {
		convert(d, data)
	}
	if d.fault != nil {
		return Result{}, d.fault
	}
	return d.result(), nil
}
