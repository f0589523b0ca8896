package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	yaml4 "go.yaml.in/yaml/v4"
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

// locate is what is wrong with a text that is no YAML, and where. The parser that
// files are decoded by knows no column, and counts some lines from 0; its successor
// knows both. ok is false if that one finds nothing wrong, or cannot tell where.
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

// lineOf finds the line in an error of the parser.
var lineOf = regexp.MustCompile(`^yaml: line ([0-9]+): `)

// syntax notes an error of the parser.
func (d *decoder) syntax(err error, data []byte) {
	p := place{Position: Position{File: d.file, Line: 1, Column: 1}}
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
	switch {
	case bytes.Contains(near, []byte("\t")):
		instead = "indent with spaces, not with tabs"
	case bytes.Contains(near, []byte("${")):
		instead = `put ${NAME} in quotes`
	}
	d.add(p, "not YAML: "+what, instead)
}
