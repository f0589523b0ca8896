package key

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// FoldHeader is the name of a header field as servers show it that hand it on in
// a variable (CGI, FastCGI, WSGI, Rack, PHP): X-Phone, X_Phone and X.Phone are
// all X_PHONE.
func FoldHeader(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// IsPlainHeader reports whether name, in canonical form, is all letters, digits
// and hyphens: no other such name folds to the same.
func IsPlainHeader(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && !isDigit(c) && c != '-' {
			return false
		}
	}
	return true
}

// Names are those of the parameters that something is read from: of a query, a
// form or the cookies. It is immutable.
type Names []folded

// A folded is a name with all that servers make of it.
type folded struct {
	name     string
	dotted   bool // see isDotted
	readings []string
}

// With is n and one name more.
func (n Names) With(name string) Names {
	if slices.ContainsFunc(n, func(f folded) bool { return f.name == name }) {
		return n
	}
	return append(slices.Clip(n), folded{name, isDotted(name), readings(name)})
}

// Confused appends to found those of n that some server takes a parameter called
// name for, although it is called otherwise; usually none. A name of letters,
// digits, "_", "-" and "." costs one comparison with each of n.
func (n Names) Confused(found []string, name string) []string {
	var all []string // what servers make of name; made when it is needed
	dotted := isDotted(name)
	for i := range n {
		switch f := &n[i]; {
		case f.name == name:
		case dotted && f.dotted:
			if equalDotted(f.name, name) {
				found = append(found, f.name)
			}
		default:
			if all == nil {
				all = readings(name)
			}
			if collide(all, f.readings) {
				found = append(found, f.name)
			}
		}
	}
	return found
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isDotted reports whether name has one reading but for letter case and dots.
func isDotted(name string) bool {
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && !isDigit(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return name != ""
}

// equalDotted compares two such names.
func equalDotted(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && plainByte(a[i]) != plainByte(b[i]) {
			return false
		}
	}
	return true
}

func plainByte(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '.':
		return '_'
	}
	return c
}

// readings are what servers make of a name, each as the names of a path into
// nested values, joined by "[": letter case is lost, whitespace around are,
// what follows a NUL may be, and escapes may be decoded once more.
func readings(name string) []string {
	name = strings.Map(foldRune, strings.ToValidUTF8(name, ""))
	forms := []string{name}
	if plain, err := url.QueryUnescape(name); err == nil && plain != name {
		forms = append(forms, strings.Map(foldRune, strings.ToValidUTF8(plain, "")))
	}
	var all []string
	add := func(reading string) {
		if reading != "" && !slices.Contains(all, reading) {
			all = append(all, reading)
		}
	}
	for _, form := range forms {
		if i := strings.IndexByte(form, 0); i >= 0 {
			add(nested(form[:i]))
			add(underscored(form[:i]))
		}
		form = strings.Map(visible, form)
		add(nested(form))
		add(underscored(form))
	}
	return all
}

// nested reads a name as qs, Rack and Rails do, brackets wherever they stand:
// [phone], phone[], phone] and phone[0] are all about phone. Spring binds !phone
// to phone as well, and of a query PHP drops every question mark in front.
func nested(name string) string {
	var path []string
	for _, s := range strings.FieldsFunc(name, func(r rune) bool { return r == '[' || r == ']' }) {
		s = strings.TrimSpace(s)
		if len(path) == 0 {
			s = strings.TrimLeftFunc(s, leading)
		}
		if s != "" {
			path = append(path, strings.Map(underscore, s))
		}
	}
	return strings.Join(path, "[")
}

// underscored reads a name as PHP does: a dot, a space and a bracket that is not
// closed are "_", but for what is dropped in front.
func underscored(name string) string {
	name = strings.TrimLeftFunc(name, leading)
	base, index, found := strings.Cut(name, "[")
	if found && !strings.Contains(index, "]") {
		return strings.Map(underscore, strings.ReplaceAll(name, "[", "_"))
	}
	base = strings.Map(underscore, base)
	if inner := nested(index); inner != "" && base != "" {
		return base + "[" + inner
	}
	return base
}

// leading reports whether some servers drop r in front of a name.
func leading(r rune) bool { return r == '?' || r == '!' || unicode.IsSpace(r) }

func underscore(r rune) rune {
	if r == '.' || unicode.IsSpace(r) {
		return '_'
	}
	return r
}

// visible drops what shows nothing.
func visible(r rune) rune {
	if unicode.IsControl(r) && !unicode.IsSpace(r) || isInvisible(r) {
		return -1
	}
	return r
}

// foldRune is one of all runes that differ from r in case only: an ASCII letter
// if there is one, as for the sign of the kelvin.
func foldRune(r rune) rune {
	if r < 0x80 {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if least = min(least, other); other < 0x80 {
			return foldRune(other)
		}
	}
	return least
}

// collide reports whether a path of one name is a path of the other, or leads to
// it: phone[x] makes something else of phone.
func collide(some, others []string) bool {
	for _, a := range some {
		for _, b := range others {
			if a == b || strings.HasPrefix(a, b) && a[len(b)] == '[' || strings.HasPrefix(b, a) && b[len(a)] == '[' {
				return true
			}
		}
	}
	return false
}
