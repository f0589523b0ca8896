package route

import (
	"strconv"
	"strings"
)

// An ending describes the last segment of a path pattern, without a trailing slash.
type ending int

const (
	endsLiteral  ending = iota // text, which a request must have exactly
	endsRest                   // *
	endsParam                  // a parameter of any text
	endsRegexp                 // a parameter with a regular expression
	endsKey                    // a parameter of any text that a limit or a list reads
	endsKeyRegex               // such a parameter with a regular expression
)

// endingOf returns the ending of a pattern as made by shape.
func endingOf(shape string, p Pattern, params []string) ending {
	shape = trimSlash(shape)
	switch {
	case strings.HasSuffix(shape, "/*"):
		return endsRest
	case !strings.HasSuffix(shape, "}"):
		return endsLiteral
	}
	e := endsRegexp
	if strings.HasSuffix(shape, "{p"+strconv.Itoa(len(params)-1)+"}") {
		e = endsParam
	}
	if p.EndsInKey {
		e += endsKey - endsParam
	}
	return e
}

// checkFormat returns ErrTarget if a server that cuts a format suffix off the path, as Rails does
// with its routes for (.:format), could read another key from it: id 7 from /users/7.json. Any
// suffix is one to it. A regular expression that admits the dot states that the upstream does not do
// this; a pattern whose last segment is literal is matched as it is written.
//
// read is the path as lenient servers read it.
func (f *folded) checkFormat(q *Request, read string) error {
	path := trimSlash(read)
	last := strings.LastIndexByte(path, '/')
	dot := strings.IndexByte(path[last:], '.')
	switch {
	case dot < 0:
		return nil
	case q.found.ending == endsKey:
		return errAnotherPath
	case q.found.ending != endsRest && q.found.ending != endsParam:
		return nil
	}
	var few [8]string // avoids an allocation in most cases
	found, values := q.found, append(few[:0], q.values...)
	var err error
	for _, method := range []string{q.Method, effectiveMethod(q.Method)} {
		var other *entry
		if other, err = f.lookup(q, method, foldPath(path[:last+dot])); err != nil {
			break
		}
		if other != nil && other.ending >= endsKey {
			err = errAnotherPath
			break
		}
	}
	q.found, q.values = found, append(q.values[:0], values...)
	return err
}
