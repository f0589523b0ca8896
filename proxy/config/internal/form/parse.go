package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml4 "go.yaml.in/yaml/v4"
	"gopkg.in/yaml.v3"
)

// parse returns the only document of a file; nil after a problem.
func (d *decoder) parse(data []byte) *yaml.Node {
	whole := Location{Position: Position{File: d.file}}
	if len(data) > MaxSize {
		d.Add(whole, fmt.Sprintf("is longer than %d MiB", MaxSize>>20), "move parts of it to files under include")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	root, err := document(decoder)
	switch {
	case errors.Is(err, io.EOF):
		d.Add(whole, "is empty", "write at least routes")
		return nil
	case err != nil:
		d.syntax(err, data)
		return nil
	}
	switch second, err := document(decoder); {
	case err != nil && !errors.Is(err, io.EOF):
		d.syntax(err, data)
		return nil
	case err == nil:
		d.Add(Location{Position: d.at(second)}, "a second document begins here", "keep one document a file, without ---")
		return nil
	}
	return root.Content[0]
}

// document decodes the next document. The parser panics on some invalid inputs, which is
// recovered here.
func document(decoder *yaml.Decoder) (n *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("yaml: %v", p)
		}
	}()
	n = &yaml.Node{}
	if err := decoder.Decode(n); err != nil {
		return nil, err
	}
	return n, nil
}

// locate returns the position and description of a syntax error. The parser that decodes
// files reports no column, and counts some lines from 0; its successor reports both. ok is
// false if that one finds no error, or no position.
func locate(data []byte) (found *yaml4.LoadError, ok bool) {
	defer func() {
		if recover() != nil {
			found, ok = nil, false
		}
	}()
	decoder := yaml4.NewDecoder(bytes.NewReader(data))
	for {
		err := decoder.Decode(&yaml4.Node{})
		if err == nil {
			continue
		}
		return found, errors.As(err, &found) && found.Mark.Line > 0 && found.Mark.Column > 0
	}
}

// lineOf matches the line number in an error of the parser.
var lineOf = regexp.MustCompile(`^yaml: line ([0-9]+): `)

// syntax reports an error of the parser.
func (d *decoder) syntax(err error, data []byte) {
	p := Location{Position: Position{File: d.file, Line: 1, Column: 1}}
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		what = err.Error()[len(m[0]):]
	}
	if exact, ok := locate(data); ok {
		p.Line, p.Column, what = exact.Mark.Line, exact.Mark.Column, exact.Message
		if begins := exact.ContextMark.Line; exact.ContextMsg != "" && begins > 0 && begins != p.Line {
			what += fmt.Sprintf(" %s that begins on line %d", exact.ContextMsg, begins)
		}
	}
	instead := "look for a missing colon, space, quote or bracket there or on the line before"
	lines := bytes.Split(data, []byte("\n"))
	near := bytes.Join(lines[max(0, min(p.Line-2, len(lines))):min(p.Line+1, len(lines))], []byte("\n"))
	for i := max(p.Line-2, 0); i < min(p.Line, len(lines)); i++ {
		if m := oddSyntax.FindSubmatchIndex(lines[i]); m != nil {
			r, _ := utf8.DecodeRune(lines[i][m[2]:])
			p.Line, p.Column = i+1, 1+utf8.RuneCount(lines[i][:m[2]])
			what, instead := describe(r)
			d.Add(p, "not YAML: "+what, instead)
			return
		}
	}
	switch {
	case d.twoColons(lines, p.Line) != "":
		instead = d.twoColons(lines, p.Line)
	case bytes.Contains(near, []byte("\t")):
		instead = "indent with spaces, not with tabs"
	case bytes.Contains(near, []byte("${")):
		instead = `put ${NAME} in quotes`
	}
	d.Add(p, "not YAML: "+what, instead)
}

// twoColons returns what to write if a line has NAME: NAME: VALUE where a text with a colon is wanted, or "".
func (d *decoder) twoColons(lines [][]byte, line int) string {
	if line < 1 || line > len(lines) {
		return ""
	}
	m := colons.FindSubmatch(lines[line-1])
	if m == nil {
		return ""
	}
	_, instead := d.hint(string(m[1]), string(m[2])+": "+string(m[3]))
	return instead
}

// colons matches NAME: NAME: VALUE in a line.
var colons = regexp.MustCompile(`([A-Za-z_]+):\s+([A-Za-z_]+):\s+([^\s,}\]]+)`)
