package form

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Position is a position in a file. Line and Column count from 1; they are 0 for the
// whole file.
type Position struct {
	File         string
	Line, Column int
}

// String returns file:line:column.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// A Problem is one error or warning about a file.
type Problem struct {
	Position
	Path    string // of the field: routes[0].limits[1].rate; may be empty
	What    string // what is wrong
	Instead string // what to write instead; may be empty
}

// String returns one line: file:line:column: Path: what is wrong; what to write instead.
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

// Problems is an error with all problems, by file, line and column; the main file comes
// first. It has at least one entry.
type Problems []Problem

// Error returns one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Arrange sorts ps by the order of files, then by position, and removes duplicates.
func Arrange(ps []Problem, files []string) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
		)
	})
	return slices.Compact(ps)
}
