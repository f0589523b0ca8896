package key

import (
	"strings"
	"unicode"
)

const (
	maxSpelling  = 160 // bytes of a phone number as written
	maxDialed    = 24  // digits, with international prefixes
	maxExtension = 9   // digits
)

// dialedDigits returns the characters that would be dialed for a phone number: a plus, if it
// begins with one, and ASCII digits. It accepts whitespace, dashes, dots, slashes and
// parentheses, also full-width ones. It drops "tel:" before the number, an extension after
// it (";ext=5", "ext. 5", "x5"), and invisible characters from copied text; extension
// reports whether there was an extension. Everything else is not a phone number: digits
// beyond ASCII, letters as in 1-800-FLOWERS, other text before or after the number, a
// second plus, line breaks, other parameters of a URI. A result of dialedDigits is returned
// unchanged when it is passed in again, without allocating.
func dialedDigits(s string) (digits string, extension, ok bool) {
	if isDialedForm(s) {
		return s, false, true
	}
	if len(s) > maxSpelling {
		return "", false, false
	}
	var buffer [maxSpelling]byte
	spelling, ok := appendASCII(buffer[:0], s)
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
		return "", false, false // -138 is a negative number
	}
	var out [maxDialed + 1]byte
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
	return digits, extension, isDialedForm(digits)
}

// isDialedForm reports whether s consists of an optional plus, and digits.
func isDialedForm(s string) bool {
	digits := strings.TrimPrefix(s, "+")
	if digits == "" || len(digits) > maxDialed {
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

// appendASCII appends s to b in ASCII: letters in lower case, whitespace as a space, dashes as
// a hyphen. It reports whether all of s has such a form.
func appendASCII(b []byte, s string) ([]byte, bool) {
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

// isInvisible reports whether r is a character without width, such as a joiner or a mark of
// text direction.
func isInvisible(r rune) bool {
	switch {
	case r == '\u00AD', r == '\u061C', r == '\uFEFF',
		'\u200B' <= r && r <= '\u200F', '\u202A' <= r && r <= '\u202E', '\u2060' <= r && r <= '\u2069':
		return true
	}
	return false
}

// isExtension reports whether s, in the form of appendASCII, is an extension and nothing else.
func isExtension(s string) bool {
	digits, ok := strings.CutPrefix(s, ";ext=")
	for _, mark := range []string{"extension", "ext", "x"} {
		if !ok {
			if digits, ok = strings.CutPrefix(s, mark); ok {
				digits = strings.TrimLeft(digits, " .:")
			}
		}
	}
	return ok && len(digits) <= maxExtension && !strings.HasPrefix(digits, "+") && isDialedForm(digits)
}
