package route

import (
	"net/url"
	"slices"
	"strings"
)

// A folded index holds the same entries under case-folded paths without a trailing
// slash, as case-insensitive servers see them. Of entries that collide there,
// guarded ones come first.
type folded struct {
	index
	guarded int                 // number of guarded entries
	plain   bool                // all patterns are lower case and have no trailing slash
	keys    bool                // some pattern ends in a key, see checkFormat
	bases   map[string]struct{} // "/files" for "/files/*": some servers treat both alike
}

// fold builds the folded index of entries.
func fold(entries []*entry) *folded {
	f := &folded{index: newIndex(), plain: true, bases: map[string]struct{}{}}
	first := slices.Clone(entries)
	slices.SortStableFunc(first, func(a, b *entry) int {
		switch {
		case a.Guarded == b.Guarded:
			return 0
		case a.Guarded:
			return -1
		}
		return 1
	})
	for _, e := range first {
		pattern := foldPattern(e.shape)
		f.put(e, pattern)
		f.plain = f.plain && pattern == e.shape
		f.keys = f.keys || e.ending >= endsKey
		if e.Guarded {
			f.guarded++
		}
	}
	for _, e := range first {
		if base, ok := strings.CutSuffix(foldPattern(e.shape), "/*"); ok && base != "" {
			f.put(e, base)
			f.bases[base] = struct{}{}
			f.plain = f.plain && !strings.Contains(base, "{")
		}
	}
	return f
}

// foldPattern returns the key of a pattern, as made by shape, in the folded
// index.
func foldPattern(pattern string) string {
	var b strings.Builder
	for rest := pattern; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			b.WriteString(foldText(rest))
			break
		}
		end := open + closingBrace(rest[open:])
		name, expression, regular := strings.Cut(rest[open:end], ":")
		b.WriteString(foldText(rest[:open]) + name)
		if lower := strings.ToLower(expression); regular && lower != expression {
			expression = "^(?i:" + expression + ")$"
		}
		if regular {
			b.WriteString(":" + expression)
		}
		b.WriteByte('}')
		rest = rest[end+1:]
	}
	return trimSlash(b.String())
}

// foldPath returns the key of a path in the folded index.
func foldPath(path string) string { return trimSlash(foldText(path)) }

// trimSlash returns path without its trailing slash.
func trimSlash(path string) string {
	if len(path) > 1 {
		return strings.TrimSuffix(path, "/")
	}
	return path
}

// foldText folds the case of letters, including non-ASCII ones: the lower case of
// the Kelvin sign, for example, is an ASCII k.
func foldText(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return strings.ToLower(s)
	}
	segments := strings.Split(s, "/")
	for i, s := range segments {
		if text, err := url.PathUnescape(s); err == nil && strings.IndexByte(s, '%') >= 0 {
			s = url.PathEscape(strings.ToLower(strings.ToUpper(text)))
		}
		segments[i] = strings.ToLower(s)
	}
	return strings.Join(segments, "/")
}

// differs reports whether path may have another key in the folded index.
func (f *folded) differs(path string) bool {
	if !f.plain || len(path) > 1 && path[len(path)-1] == '/' {
		return true
	}
	for i := range len(path) {
		if c := path[i]; 'A' <= c && c <= 'Z' { // the digits of an escape as well
			return true
		}
	}
	_, base := f.bases[path]
	return base
}
