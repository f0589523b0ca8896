package route

import (
	"strconv"
	"strings"
)

// A Pattern says which requests an entry is for, and how strictly they are read. It
// was checked when the configuration was read.
type Pattern struct {
	Host    string            // "" and "*" are any; "*.example.com" is all hosts under it
	Methods []string          // none for any
	Path    string            // /users/{id}, /users/{id:[0-9]+}, /files/*
	Headers map[string]string // values by names of fields; "*" is any value
	Query   map[string]string // the same for parameters of the query

	// Guarded says that requests may be refused under this pattern. One that a careless
	// upstream would take for a request of a guarded pattern is found under that one.
	Guarded bool
	// Keys are the parameters of the path that tell clients apart: a path that some
	// servers read with another value of one is refused.
	Keys []string
	// KeepsSlashes says that a slash that is escaped may stand in the path.
	KeepsSlashes bool
	// IgnoresForms says that a form in the body may stand beside a query that decides.
	IgnoresForms bool
}

// An entry is a pattern as it is looked up.
type entry struct {
	Pattern
	number         int      // in the table
	shape          string   // of the path, its parameters renamed
	params         []string // names of the path's parameters, in order
	segments       []int    // where they stand
	depth          string
	headers, query []condition
}

func newEntry(number int, p Pattern) *entry {
	e := &entry{Pattern: p, number: number}
	e.shape, e.params = shape(p.Path)
	e.segments, e.depth = segments(e.shape), depth(e.shape)
	e.headers, e.query = headerConditions(p.Headers), conditions(p.Query, strings.Clone)
	return e
}

// conditions is how many conditions on headers and query e has.
func (e *entry) conditions() int { return len(e.headers) + len(e.query) }

// onePath reports whether e is for one path only.
func (e *entry) onePath() bool { return len(e.params) == 0 }

// capture is what the segments of path are for the parameters of e, as they were
// sent.
func (e *entry) capture(path string) []string {
	segments := strings.Split(path[1:], "/")
	var values []string
	for i, at := range e.segments {
		switch {
		case at >= len(segments):
			values = append(values, "")
		case e.params[i] == "*":
			values = append(values, strings.Join(segments[at:], "/"))
		default:
			values = append(values, segments[at])
		}
	}
	return values
}

// shape renames the parameters of a path pattern by their position, so that
// patterns which match the same paths are the same text, and returns the names
// in order. The pattern was checked when the configuration was read.
func shape(path string) (pattern string, params []string) {
	var b strings.Builder
	for path != "" {
		open := strings.IndexByte(path, '{')
		if open < 0 {
			break
		}
		end := open + closing(path[open:])
		name, expression, regular := strings.Cut(path[open+1:end], ":")
		b.WriteString(spell(path[:open]) + "{p" + strconv.Itoa(len(params)))
		if regular {
			b.WriteString(":" + expression)
		}
		b.WriteByte('}')
		params = append(params, name)
		path = path[end+1:]
	}
	b.WriteString(spell(path))
	if strings.HasSuffix(path, "*") {
		params = append(params, "*")
	}
	return b.String(), params
}

// segments are the numbers of those in which the parameters of a pattern stand,
// the one for * last.
func segments(pattern string) []int {
	var at []int
	number := 0
	for i := 1; i < len(pattern); i++ {
		switch pattern[i] {
		case '/':
			number++
		case '*':
			at = append(at, number)
		case '{':
			at = append(at, number)
			i += closing(pattern[i:])
		}
	}
	return at
}

// spell writes the plain part of a pattern as tidy writes a path.
func spell(part string) string {
	if spelled, err := respell(part); err == nil {
		return spelled
	}
	return part
}

// closing is the index of the brace that closes the one s begins with.
func closing(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return len(s) - 1
}

// depth says how specific each segment of a pattern is: of two patterns that
// match one path, the one whose depth is smaller is the more specific. chi
// weighs them in the same order.
func depth(pattern string) string {
	var b strings.Builder
	for segment := range strings.SplitSeq(pattern[1:], "/") {
		switch {
		case segment == "*":
			b.WriteByte('d')
		case !strings.Contains(segment, "{"):
			b.WriteByte('a')
		case strings.Contains(segment, ":"):
			b.WriteByte('b')
		default:
			b.WriteByte('c')
		}
	}
	return b.String()
}
