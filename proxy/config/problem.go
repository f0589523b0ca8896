package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Position is a place in a file. Line and Column count from 1; they are 0
// when the whole file is meant.
type Position struct {
	File         string
	Line, Column int
}

// String is file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// A Problem is one thing that is wrong in a file.
type Problem struct {
	Position
	Path    string // of the field: routes[0].limits[1].rate; may be empty
	What    string // is wrong
	Instead string // to write; may be empty
}

// String is one line: file:line:column: path: what is wrong; what to write
// instead.
func (p Problem) String() string {
	s := p.Position.String() + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	s += p.What
	if p.Instead != "" {
		s += "; " + p.Instead
	}
	return s
}

// Problems are all that is wrong, by file, line and column; the main file
// stands first. It is never an error without an entry.
type Problems []Problem

// Error is one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// arrange sorts ps by the order of files, then by place, and drops doubles.
func arrange(ps []Problem, files []string) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return slices.Compact(ps)
}
