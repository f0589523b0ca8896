package route

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Descriptor is what Envoy's rate limit filter asks about: entries in the order in which they
// were made.
type Descriptor []DescriptorField

// A DescriptorField is one entry of a Descriptor.
type DescriptorField struct{ Key, Value string }

// Value returns the value of an entry, "" if there is none.
func (d Descriptor) Value(key string) string {
	value, _ := d.Find(key)
	return value
}

// Find returns the value of an entry, and whether there is one.
func (d Descriptor) Find(key string) (value string, found bool) {
	for i := range d {
		if d[i].Key == key {
			return d[i].Value, true
		}
	}
	return "", false
}

// A DescriptorEntry is a pattern of descriptors and its value. The pattern has all entries of the
// descriptors that it matches: the exact value, a prefix that ends with *, or * for any.
type DescriptorEntry[R any] struct {
	Domain  string
	Entries map[string]string
	Value   R
}

// Descriptors finds the most specific pattern of a descriptor: that with most exact values, then that with the
// longest prefixes, then the earliest. What a search costs depends on the shapes of the patterns with the keys of the
// descriptor, not on how many patterns there are. It is immutable and safe for concurrent use.
type Descriptors[R any] struct {
	byKeys map[string][]descriptorShape[R] // by domain and keys; the most specific first
}

// A descriptorShape has the patterns that agree in everything but in the text of their values: in the keys, in which of
// them have exact values, and in the lengths of the prefixes of the others.
type descriptorShape[R any] struct {
	specificity
	lengths  []int // of the prefixes, by key; exact for an exact value
	patterns map[string]numbered[R]
}

// exact is the length of an exact value.
const exact = -1

// A numbered is the value of a pattern and its position among all.
type numbered[R any] struct {
	at    int
	value R
}

// NewDescriptors builds Descriptors.
func NewDescriptors[R any](entries []DescriptorEntry[R]) *Descriptors[R] {
	d := &Descriptors[R]{byKeys: map[string][]descriptorShape[R]{}}
	for at, e := range entries {
		shape, values := descriptorShape[R]{patterns: map[string]numbered[R]{}}, Descriptor{}
		for _, key := range slices.Sorted(maps.Keys(e.Entries)) {
			prefix, open := strings.CutSuffix(e.Entries[key], "*")
			length := exact
			if open {
				length, shape.prefixes = len(prefix), shape.prefixes+len(prefix)
			} else {
				shape.exact++
			}
			shape.lengths, values = append(shape.lengths, length), append(values, DescriptorField{key, prefix})
		}
		keys := string(values.appendKeys(nil, e.Domain))
		i := slices.IndexFunc(d.byKeys[keys],
			func(o descriptorShape[R]) bool { return slices.Equal(o.lengths, shape.lengths) })
		if i < 0 {
			i, d.byKeys[keys] = len(d.byKeys[keys]), append(d.byKeys[keys], shape)
		}
		text, _ := shape.appendValues(nil, values)
		if _, earlier := d.byKeys[keys][i].patterns[string(text)]; !earlier {
			d.byKeys[keys][i].patterns[string(text)] = numbered[R]{at, e.Value}
		}
	}
	for _, shapes := range d.byKeys {
		slices.SortFunc(shapes, func(a, b descriptorShape[R]) int { return b.compare(a.specificity) })
	}
	return d
}

// A specificity says how specific a pattern is.
type specificity struct{ exact, prefixes int }

func (s specificity) compare(o specificity) int {
	return cmp.Or(cmp.Compare(s.exact, o.exact), cmp.Compare(s.prefixes, o.prefixes))
}

// Find returns the value of the most specific pattern of a domain that matches a descriptor. A
// descriptor that has an entry twice matches nothing.
func (d *Descriptors[R]) Find(domain string, of Descriptor) (value R, found bool) {
	var entries [8]DescriptorField
	var text [256]byte // without an allocation for those that are usual
	sorted := append(Descriptor(entries[:0]), of...)
	slices.SortFunc(sorted, func(a, b DescriptorField) int { return cmp.Compare(a.Key, b.Key) })
	var best numbered[R]
	var as specificity
	shapes := d.byKeys[string(sorted.appendKeys(text[:0], domain))]
	for i := range shapes {
		s := &shapes[i]
		if found && s.specificity != as {
			break
		}
		values, fits := s.appendValues(text[:0], sorted)
		if p, has := s.patterns[string(values)]; fits && has && (!found || p.at < best.at) {
			best, as, found = p, s.specificity, true
		}
	}
	return best.value, found
}

// appendKeys appends a domain and the keys of d, which is sorted by them. Patterns have each key once.
func (d Descriptor) appendKeys(b []byte, domain string) []byte {
	b = appendPart(b, domain)
	for i := range d {
		b = appendPart(b, d[i].Key)
	}
	return b
}

// appendValues appends the values of d, which is sorted by its keys, as far as patterns of s have them. It reports
// false if one is shorter.
func (s *descriptorShape[R]) appendValues(b []byte, d Descriptor) (appended []byte, fits bool) {
	for i, length := range s.lengths {
		value := d[i].Value
		if length > len(value) {
			return b, false
		}
		if length != exact {
			value = value[:length]
		}
		b = appendPart(b, value)
	}
	return b, true
}

// appendPart appends a part of a text, of which no other parts make the same.
func appendPart(b []byte, part string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

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
