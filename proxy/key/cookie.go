package key

import (
	"fmt"
	"net/url"
	"strings"
)

// cookie returns the value of the cookie with this name, "" if there is none. Escapes are
// decoded, because some servers do so and a client could otherwise send one value in many
// spellings. ErrAmbiguous reports what servers parse differently: a second Cookie field,
// which some join with a comma; a name in another spelling, or with whitespace around it; a
// quoted string that extends beyond its pair; and in the value, characters that RFC 6265
// forbids, an invalid escape, an unescaped plus, and the prefix of JSON cookies.
func cookie(fields []string, name string) (string, error) {
	field, err := single(fields)
	if err != nil {
		return "", fmt.Errorf("%w: two Cookie fields", ErrAmbiguous)
	}
	var names NameSet                     // created when needed
	value, seen, open := "", false, false // open: inside a quoted string, for servers that support them
	for after := byte(';'); field != ""; {
		pair, separator, rest := cutCookie(field)
		this, text, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if this != name && names == nil {
			names = names.With(name)
		}
		switch {
		case this != name && (len(names.Confused(nil, this)) > 0 || nameless(this, text, name)):
			return "", fmt.Errorf("%w: some servers read another cookie as this one", ErrAmbiguous)
		case this == name && (seen || open || after == ',' || separator == ','):
			return "", fmt.Errorf("%w: a repeated cookie, or one next to a comma or within quotes", ErrAmbiguous)
		case this == name:
			value, seen = text, true
		}
		open = open != (strings.Count(pair, `"`)%2 != 0) || strings.Contains(pair, `\"`)
		field, after = rest, separator
	}
	return cookieValue(value)
}

// nameless reports whether a pair without a name, such as "=sid=1", is this cookie for
// servers that split it at a later "=".
func nameless(this, text, name string) bool {
	if strings.TrimSpace(this) != "" {
		return strings.TrimSpace(this) == name
	}
	inner, _, _ := strings.Cut(text, "=")
	return strings.TrimSpace(inner) == name
}

// cookieValue decodes a value.
func cookieValue(value string) (string, error) {
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		return "", fmt.Errorf("%w: a quote, space, backslash or non-ASCII byte in a cookie", ErrAmbiguous)
	}
	if strings.IndexByte(value, '+') >= 0 {
		return "", fmt.Errorf("%w: a plus in a cookie, which some servers read as a space; write %%2B", ErrAmbiguous)
	}
	plain, err := url.PathUnescape(value)
	if err != nil || strings.ContainsFunc(plain, func(r rune) bool { return r == ' ' || r == '"' || r == '\\' }) {
		return "", fmt.Errorf("%w: a %% in a cookie that is not a valid escape, or an escaped quote, space or "+
			"backslash", ErrAmbiguous)
	}
	if strings.HasPrefix(plain, "j:") {
		return "", fmt.Errorf("%w: a cookie that Express reads as JSON", ErrAmbiguous)
	}
	return plain, nil
}

// cutCookie splits the first pair off a Cookie field. Some old servers also split at
// commas.
func cutCookie(field string) (pair string, separator byte, rest string) {
	i := strings.IndexAny(field, ";,")
	if i < 0 {
		return field, ';', ""
	}
	return field[:i], field[i], field[i+1:]
}
