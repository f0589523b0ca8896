// Package convert translates the limits in the configurations of other programs into a
// configuration of Weir. It is pure: it reads one text and returns another, opens no file
// and dials nobody.
//
// Promised: the result is a configuration that weir check accepts, unless names, hosts or
// addresses of the other file are none for Weir. A limit in it admits the requests that the
// other program admits, or a note says what is different. What is not carried over has a note
// with what to do. Notes stand in the result as comments, each with the line of the other
// file.
//
// Not promised: a complete proxy. Only what concerns limits is read, and of routes what is
// needed to find the requests that they apply to and where these go.
package convert

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// maxSize bounds the text that is read.
const maxSize = 16 << 20

// A Result is a configuration of Weir.
type Result struct {
	YAML   []byte
	Limits []byte // the part of YAML that has no sections of the machine
	Notes  []Note // in the order in which they stand in YAML
}

// A Note says that a line of the other file is not carried over, or what is different.
type Note struct {
	Line    int // 0 if it is about the whole file
	What    string
	Instead string // what to do; may be empty
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
func converters() map[string]func(d *document, data []byte) error {
	return map[string]func(d *document, data []byte) error{
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
		return Result{}, d.wrong(0, "is larger than 16 MiB", "expected a configuration of "+program)
	}
	if err := convert(d, data); err != nil {
		return Result{}, err
	}
	return d.result(), nil
}
