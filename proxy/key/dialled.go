package key

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxSpelling  = 160 // bytes of a phone number as written
	maxDialled   = 24  // digits, with prefixes for going abroad
	maxExtension = 9   // digits
)

// dialled is what one would dial for a phone number as written: a plus, if it
// begins with one, and ASCII digits. It takes digits of any script, full-width
// forms, blanks, dashes, dots, slashes and parentheses; "tel:" before the
// number, and an extension after it (";ext=5", "ext. 5", "x5"), are dropped, and
// so are the invisible marks that come along when a number is copied from a
// page or an address book. Anything else makes it no phone number: letters, as
// in 1-800-FLOWERS, other text before or after the number, a second plus, line
// breaks, a URI's other parameters. What dialled returns it returns unchanged
// again, without allocating.
func dialled(s string) (digits string, ok bool) {
	if isDialled(s) {
		return s, true
	}
	if len(s) > maxSpelling {
		return "", false
	}
	var buffer [maxSpelling]byte
	spelling, ok := latin(buffer[:0], s)
	if !ok {
		return "", false
	}
	text := strings.Trim(string(spelling), " ")
	text = strings.TrimPrefix(text, "tel:")
	if i := strings.IndexFunc(text, func(r rune) bool { return 'a' <= r && r <= 'z' || r == ';' || r == ':' || r == '=' }); i >= 0 {
		if !isExtension(text[i:]) {
			return "", false
		}
		text = text[:i]
	}
	if text == "" || text[0] != '+' && text[0] != '(' && !isDigit(text[0]) {
		return "", false // -138 is a number below zero
	}
	var out [maxDialled + 1]byte
	n := 0
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '+' && n > 0, c != '+' && !isDigit(c) && strings.IndexByte(" -./()", c) < 0:
			return "", false
		case c == '+' || isDigit(c):
			if n == len(out) {
				return "", false
			}
			out[n] = c
			n++
		}
	}
	digits = string(out[:n])
	return digits, isDialled(digits)
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

// latin appends s to b in ASCII: digits as 0-9, letters in lower case, every
// blank as a space, every dash as a hyphen. It reports whether all of s has such
// a form.
func latin(b []byte, s string) ([]byte, bool) {
	for _, r := range s {
		if '\uFF01' <= r && r <= '\uFF5E' {
			r -= '\uFF01' - '!' // full-width
		}
		switch {
		case strings.ContainsRune("+-./();:=", r), 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			b = append(b, byte(r))
		case 'A' <= r && r <= 'Z':
			b = append(b, byte(r)+'a'-'A')
		case r == '\t', unicode.Is(unicode.Zs, r):
			b = append(b, ' ')
		case '\u2010' <= r && r <= '\u2015', r == '\u2212', r == '\u30FC', r == '\uFE63':
			b = append(b, '-')
		case r != utf8.RuneError && unicode.IsDigit(r):
			b = append(b, '0'+byte(value(r)))
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
