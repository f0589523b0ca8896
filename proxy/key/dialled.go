package key

import (
	"strings"
	"unicode"
)

const (
	maxSpelling  = 160 // bytes of a phone number as written
	maxDialled   = 24  // digits, with prefixes for going abroad
	maxExtension = 9   // digits
)

// dialled is what one would dial for a phone number as written: a plus, if it
// begins with one, and ASCII digits. It takes whitespace, dashes, dots, slashes
// and parentheses, full-width ones as well; "tel:" before the number, and an
// extension after it (";ext=5", "ext. 5", "x5"), are dropped, and so are the
// invisible marks that come along when a number is copied from a page or an
// address book. Whether there was an extension is told. Anything else makes it no
// phone number: digits beyond ASCII, letters, as in 1-800-FLOWERS, other text
// before or after the number, a second plus, line breaks, a URI's other
// parameters. What dialled returns it returns unchanged again, without allocating.
func dialled(s string) (digits string, extension, ok bool) {
	if isDialled(s) {
		return s, false, true
	}
	if len(s) > maxSpelling {
		return "", false, false
	}
	var buffer [maxSpelling]byte
	spelling, ok := isLatin(buffer[:0], s)
	if !ok {
		return "", false, false
	}
	text := strings.Trim(string(spelling), " ")
	text = strings.TrimPrefix(text, "tel:")
	if i := strings.IndexFunc(text, func(r rune) bool { return 'a' <= r && r <= 'z' || r == ';' || r == ':' || r == '=' }); i >= 0 {
		if !isExtension(text[i:]) {
			return "", false, false
		}
		text, extension = text[:i], true
	}
	if text == "" || text[0] != '+' && text[0] != '(' && !isDigit(text[0]) {
		return "", false, false // -138 is a number below zero
	}
	var out [maxDialled + 1]byte
	n := 0
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '+' && n > 0, c != '+' && !isDigit(c) && strings.IndexByte(" -./()", c) < 0:
			return "", false, false
		case c == '+' || isDigit(c):
			if n == len(out) {
				return "", false, false
			}
			out[n] = c
			n++
		}
	}
	digits = string(out[:n])
	return digits, extension, isDialled(digits)
}

// isDialled reports whether s is a plus or none, and digits.
func isDialled(s string) bool {
	digits := strings.TrimPrefix(s, "+")
	if digits == "" || len(digits) > maxDialled {
		return false
	}
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isLatin appends s to b in ASCII: letters in lower case, every blank as a space, every
// dash as a hyphen. It reports whether all of s has such a form.
func isLatin(b []byte, s string) ([]byte, bool) {
	for _, r := range s {
		if '\uFF01' <= r && r <= '\uFF5E' && !unicode.IsDigit(r) {
			r -= '\uFF01' - '!' // full-width
		}
		switch {
		case '0' <= r && r <= '9', 'a' <= r && r <= 'z':
			b = append(b, byte(r))
		case 'A' <= r && r <= 'Z':
			b = append(b, byte(r)+'a'-'A')
		case r < unicode.MaxASCII:
			if r == '\t' {
				r = ' '
			}
			if strings.IndexByte(" +-./();:=", byte(r)) < 0 {
				return nil, false
			}
			b = append(b, byte(r))
		case unicode.Is(unicode.Zs, r):
			b = append(b, ' ')
		case '\u2010' <= r && r <= '\u2015', r == '\u2212', r == '\u30FC', r == '\uFE63':
			b = append(b, '-')
		case !isInvisible(r):
			return nil, false
		}
	}
	return b, true
}

// isInvisible reports whether r is a mark of no width: joiners and the like, or
// one that says which way a text runs.
func isInvisible(r rune) bool {
	switch {
	case r == '\u00AD', r == '\u061C', r == '\uFEFF',
		'\u200B' <= r && r <= '\u200F', '\u202A' <= r && r <= '\u202E', '\u2060' <= r && r <= '\u2069':
		return true
	}
	return false
}

// isExtension reports whether s, in the form of latin, is nothing but an
// extension.
func isExtension(s string) bool {
	digits, ok := strings.CutPrefix(s, ";ext=")
	for _, mark := range []string{"extension", "ext", "x"} {
		if !ok {
			if digits, ok = strings.CutPrefix(s, mark); ok {
				digits = strings.TrimLeft(digits, " .:")
			}
		}
	}
	return ok && len(digits) <= maxExtension && !strings.HasPrefix(digits, "+") && isDialled(digits)
}
