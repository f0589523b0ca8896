package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// parse is the one document of a file; nil after a problem.
func (d *decoder) parse(data []byte) *yaml.Node {
	whole := place{Position: Position{File: d.file}}
	if len(data) > maxSize {
		d.add(whole, fmt.Sprintf("is longer than %d MiB", maxSize>>20), "move parts of it to files under include")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	root, err := document(decoder)
	switch {
	case errors.Is(err, io.EOF):
		d.add(whole, "is empty", "write at least routes")
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
		d.add(place{Position: d.at(second)}, "a second document begins here", "keep one document a file, without ---")
		return nil
	}
	return root.Content[0]
}

// document is the next document. The parser panics on some inputs that are no
// YAML; a file must not be able to stop the process that reads it.
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

// lineOf finds the line in an error of the parser.
var lineOf = regexp.MustCompile(`^yaml: line ([0-9]+): `)

// syntax notes an error of the parser, which knows no column.
func (d *decoder) syntax(err error, data []byte) {
	p := place{Position: Position{File: d.file, Line: 1, Column: 1}}
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := lineOf.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		what = err.Error()[len(m[0]):]
	}
	instead := "look for a missing colon, blank, quote or bracket there or on the line before"
	lines := bytes.Split(data, []byte("\n"))
	near := bytes.Join(lines[max(0, min(p.Line-2, len(lines))):min(p.Line+1, len(lines))], []byte("\n"))
	switch {
	case bytes.Contains(near, []byte("\t")):
		instead = "indent with blanks, not with tabs"
	case bytes.Contains(near, []byte("${")):
		instead = `put ${NAME} in quotes`
	}
	d.add(p, "not YAML: "+what, instead)
}
