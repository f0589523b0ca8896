package key

import (
	"fmt"
	"net/url"
	"strings"
)

// cookie is the one cookie of this name in the Cookie field, "" if there is none.
// Escapes are decoded, because some servers do so and a client could otherwise spell
// one value in many ways. What servers read in different ways is ErrAmbiguous: a
// second Cookie field, which some join with a comma; a name that is folded, or has
// whitespace around it; a string in quotes that reaches over the end of its pair; and
// in the value, what RFC 6265 forbids there, a % that is no escape, a plus that is
// none either, and the mark of JSON.
func cookie(fields []string, name string) (string, error) {
	field, err := one(fields)
	if err != nil {
		return "", fmt.Errorf("%w: two Cookie fields", ErrAmbiguous)
	}
	var names Names                       // made when it is needed
	value, seen, open := "", false, false // open: within quotes, for those who know them
	for after := byte(';'); field != ""; {
		pair, separator, rest := cutCookie(field)
		this, text, _ := strings.Cut(strings.TrimLeft(pair, " "), "=")
		if this != name && names == nil {
			names = names.With(name)
		}
		switch {
		case this != name && (len(names.Confused(nil, this)) > 0 || nameless(this, text, name)):
			return "", fmt.Errorf("%w: another cookie may be taken for it", ErrAmbiguous)
		case this == name && (seen || open || after == ',' || separator == ','):
			return "", fmt.Errorf("%w: a cookie that is there twice, beside a comma or within quotes", ErrAmbiguous)
		case this == name:
			value, seen = text, true
		}
		open = open != (strings.Count(pair, `"`)%2 != 0) || strings.Contains(pair, `\"`)
		field, after = rest, separator
	}
	return cookieValue(value)
}

// nameless reports whether a pair without a name, "=sid=1", has this one for
// servers that look for it where the first "=" is not the end of a name.
func nameless(this, text, name string) bool {
	if strings.TrimSpace(this) != "" {
		return strings.TrimSpace(this) == name
	}
	inner, _, _ := strings.Cut(text, "=")
	return strings.TrimSpace(inner) == name
}

// cookieValue is a value, decoded.
func cookieValue(value string) (string, error) {
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
		return "", fmt.Errorf("%w: a quote, blank, backslash or no ASCII in a cookie", ErrAmbiguous)
	}
	if strings.IndexByte(value, '+') >= 0 {
		return "", fmt.Errorf("%w: a plus in a cookie, which some servers take for a blank; write %%2B", ErrAmbiguous)
	}
	plain, err := value, error(nil)
	if strings.IndexByte(value, '%') >= 0 {
		plain, err = url.PathUnescape(value)
	}
	if err != nil || strings.ContainsFunc(plain, func(r rune) bool { return r == ' ' || r == '"' || r == '\\' }) {
		return "", fmt.Errorf("%w: a %% in a cookie that is no escape, or one of a quote, blank or backslash", ErrAmbiguous)
	}
	if strings.HasPrefix(plain, "j:") {
		return "", fmt.Errorf("%w: a cookie that Express reads as JSON", ErrAmbiguous)
	}
	return plain, nil
}

// cutCookie takes the first pair off a Cookie field. Old servers part cookies at
// commas too.
func cutCookie(field string) (pair string, separator byte, rest string) {
	i := strings.IndexAny(field, ";,")
	if i < 0 {
		return field, ';', ""
	}
	return field[:i], field[i], field[i+1:]
}
