package key

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// A Step is one step of the normalization of a value: it maps different spellings to one
// form.
type Step string

// The steps.
const (
	Trim  Step = "trim"  // removes whitespace at both ends
	Lower Step = "lower" // converts letters to lower case
	// Unicode's form NFKC: full-width letters become plain, accents one character with their letter
	NFKC   Step = "nfkc"
	Fold   Step = "fold"   // case folding and form NFC, without invisible characters: JOSÉ and josé, ſ and s, ß and ss
	Digits Step = "digits" // removes all characters except 0-9; digits of other scripts are refused
	E164   Step = "e164"   // converts a phone number to +8613800138000; see Phone
)

// Apply applies the step to s. E164 returns s unchanged: it requires a Phone.
func (step Step) Apply(s string) string {
	switch step {
	case Trim:
		return strings.TrimSpace(s)
	case Lower:
		return strings.ToLower(s)
	case NFKC:
		return norm.NFKC.String(s)
	case Fold:
		return fold(s)
	case Digits:
		return digits(s)
	}
	return s
}

// dropsLineBreak reports whether the step removes a line break at the end.
func (step Step) dropsLineBreak() bool { return step == Trim || step == Digits || step == E164 }

// fold returns the form of s in which spellings are equal that databases compare as equal without regard to case.
func fold(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return strings.ToLower(s)
	}
	s = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return -1
		}
		return r
	}, norm.NFD.String(s))
	return norm.NFC.String(cases.Fold().String(s))
}

// digits returns the characters 0-9 of s.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// FoldHeader returns the name of a header field as servers see it that pass fields in
// variables (CGI, FastCGI, WSGI, Rack, PHP): X-Phone, X_Phone and X.Phone are all X_PHONE.
func FoldHeader(name string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (isLetter(byte(r)) || isDigit(byte(r))) {
			return unicode.ToUpper(r)
		}
		return '_'
	}, name)
}

// IsPlainHeader reports whether name, in canonical form, consists of letters, digits and
// hyphens: no other such name has the same FoldHeader.
func IsPlainHeader(name string) bool { return isWord(name, "-") }

// isWord reports whether s consists of letters, digits and the characters in others.
func isWord(s, others string) bool {
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && !isDigit(c) && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// A NameSet is a set of names of query parameters, form fields or cookies, with the other
// names that some servers treat as the same. It is immutable.
type NameSet []folded

// A folded is a name with all its readings.
type folded struct {
	name     string
	dotted   bool // see isDotted
	readings []string
}

// With returns n with one more name.
func (n NameSet) With(name string) NameSet {
	if slices.ContainsFunc(n, func(f folded) bool { return f.name == name }) {
		return n
	}
	return append(slices.Clip(n), folded{name, isDotted(name), readings(name)})
}

// Includes reports whether name is one of n, or some server could take it for one.
func (n NameSet) Includes(name string) bool {
	return slices.ContainsFunc(n, func(f folded) bool { return f.name == name }) || len(n.Confused(nil, name)) > 0
}

// Confused appends to found those of n that some server could read from a parameter called
// name, although it has another name; usually none. A name of letters, digits, "_", "-" and
// "." costs one comparison with each of n.
func (n NameSet) Confused(found []string, name string) []string {
	var all []string // the readings of name, computed when needed
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

// isDotted reports whether name has one reading, apart from letter case and dots.
func isDotted(name string) bool { return name != "" && isWord(name, "_-.") }

// equalDotted reports whether two such names are equal.
func equalDotted(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && underscore(foldRune(rune(a[i]))) != underscore(foldRune(rune(b[i]))) {
			return false
		}
	}
	return true
}

// readings returns the ways in which servers read a name, each as the path of a nested
// value joined by "[". Letter case and surrounding whitespace are dropped; text after a NUL
// may be dropped, and escapes may be decoded once more.
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
		form = strings.Map(dropInvisible, form)
		add(nested(form))
		add(underscored(form))
	}
	return all
}

// nested reads a name like qs, Rack and Rails, wherever the brackets are: [phone], phone[],
// phone] and phone[0] all refer to phone. Spring binds !phone to phone as well, and PHP
// drops leading question marks in queries.
func nested(name string) string {
	var path []string
	for _, s := range strings.FieldsFunc(name, func(r rune) bool { return r == '[' || r == ']' }) {
		s = strings.TrimSpace(s)
		if len(path) == 0 {
			s = strings.TrimLeftFunc(s, isIgnoredPrefix)
		}
		if s != "" {
			path = append(path, strings.Map(underscore, s))
		}
	}
	return strings.Join(path, "[")
}

// underscored reads a name like PHP: a dot, a space and an unclosed bracket become "_",
// after leading characters have been dropped.
func underscored(name string) string {
	name = strings.TrimLeftFunc(name, isIgnoredPrefix)
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

// isIgnoredPrefix reports whether some servers drop r at the beginning of a name.
func isIgnoredPrefix(r rune) bool { return r == '?' || r == '!' || unicode.IsSpace(r) }

func underscore(r rune) rune {
	if r == '.' || unicode.IsSpace(r) {
		return '_'
	}
	return r
}

// dropInvisible maps invisible characters to -1, for strings.Map.
func dropInvisible(r rune) rune {
	if unicode.IsControl(r) && !unicode.IsSpace(r) || isInvisible(r) {
		return -1
	}
	return r
}

// foldRune maps all runes that differ only in case to the same rune: an ASCII letter if
// there is one, also for the Kelvin sign.
func foldRune(r rune) rune {
	if r < 0x80 {
		return unicode.ToLower(r)
	}
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if least = min(least, other); other < 0x80 {
			return foldRune(other)
		}
	}
	return least
}

// collide reports whether a path of one name equals a path of the other, or is a prefix of
// it: phone[x] changes the meaning of phone.
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

// checkAmbiguous returns an error unless all servers read the text of a key at o in the
// same way. Characters that the steps of s remove are allowed.
func (s *Spec) checkAmbiguous(o *Origin, f *result) error {
	if !o.Source.IsSpelled() {
		return nil
	}
	sent := f.text
	switch {
	case f.lineBreak && !slices.ContainsFunc(s.Normalize, Step.dropsLineBreak):
		return fmt.Errorf("%w: the form ends with a line break, which most servers read as part of it", ErrAmbiguous)
	case f.kind != 0 || isPlainText(sent):
		return nil
	case strings.IndexByte(sent, 0) >= 0:
		return fmt.Errorf("%w: a NUL, at which some servers truncate it", ErrAmbiguous)
	case !utf8.ValidString(sent):
		return fmt.Errorf("%w: it is not UTF-8", ErrAmbiguous)
	case table[o.Source].isLatin && latinDigits(sent):
		return fmt.Errorf("%w: bytes that are digits in Latin-1", ErrAmbiguous)
	case slices.Contains(s.Normalize, Digits), slices.Contains(s.Normalize, E164):
		return nil // these steps refuse what they do not remove
	case o.Source.IsField() && strings.ContainsFunc(sent, func(r rune) bool { return r >= utf8.RuneSelf }):
		return fmt.Errorf("%w: bytes beyond ASCII in a header field", ErrAmbiguous)
	}
	if slices.Contains(s.Normalize, Trim) {
		sent = strings.TrimSpace(sent)
	}
	switch {
	case strings.ContainsFunc(sent, unicode.IsControl):
		return fmt.Errorf("%w: a control character", ErrAmbiguous)
	case sent != strings.TrimFunc(sent, blank):
		return fmt.Errorf("%w: surrounding whitespace, which some servers drop", ErrAmbiguous)
	}
	return nil
}

// isPlainText reports the common case: visible ASCII, with whitespace inside.
func isPlainText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s == "" || s[0] != ' ' && s[len(s)-1] != ' '
}

// blank reports whether some servers drop r at the ends of a text.
func blank(r rune) bool { return unicode.IsSpace(r) || isInvisible(r) }

// latinDigits reports whether s contains a number beyond ASCII when it is read as Latin-1,
// like header fields by WSGI and Node, and header and form fields by Tomcat: the
// superscript two in the bytes of a Cyrillic letter, for example.
func latinDigits(s string) bool {
	return slices.ContainsFunc([]byte(s), func(c byte) bool { return c >= utf8.RuneSelf && unicode.IsNumber(rune(c)) })
}

// checkDigits returns an error if s has a digit or number beyond ASCII. Java, JavaScript,
// Go and PHP drop it because it is not one of 0-9, Python reads decimal ones as digits, and
// phone number libraries do both.
func checkDigits(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf && unicode.IsNumber(r) }) {
		return fmt.Errorf("%w: digits other than 0-9", ErrAmbiguous)
	}
	return nil
}
