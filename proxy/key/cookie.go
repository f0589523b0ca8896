package key

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// cookie is the one cookie of this name in the Cookie fields, "" if there is
// none. Escapes are decoded, because some servers do so and a client could
// otherwise spell one value in many ways; the quotes, commas, blanks and
// backslashes that RFC 6265 forbids in a value, and servers read in different
// ways, are ErrInvalid.
func cookie(fields []string, name string) (string, error) {
	value, seen := "", false
	for _, field := range fields {
		after := byte(';')
		for field != "" {
			var pair string
			pair, separator, rest := cut(field)
			this, text, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
			this = strings.TrimRight(this, " \t")
			if this == name || disguises(this, name) {
				if seen || this != name || after == ',' {
					return "", ErrAmbiguous
				}
				if separator == ',' {
					return "", fmt.Errorf("%w: a comma in a cookie", ErrInvalid)
				}
				value, seen = strings.TrimLeft(text, " \t"), true
			}
			field, after = rest, separator
		}
	}
	if i := strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\\' }); i >= 0 {
		return "", fmt.Errorf("%w: a quote, blank or backslash in a cookie", ErrInvalid)
	}
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	if !utf8.ValidString(value) {
		return "", fmt.Errorf("%w: a cookie is not UTF-8", ErrInvalid)
	}
	return value, nil
}

// cut takes the first pair off a Cookie field. Old servers part cookies at
// commas too.
func cut(field string) (pair string, separator byte, rest string) {
	i := strings.IndexAny(field, ";,")
	if i < 0 {
		return field, ';', ""
	}
	return field[:i], field[i], field[i+1:]
}
