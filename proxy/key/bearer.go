package key

import (
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// bearer is the token of the only Authorization field, "" if it is of another
// scheme. What servers cut in different ways is ErrAmbiguous, so that no request
// passes for one without a token whose upstream finds one: more than one blank
// after the scheme, a tab, a token without a scheme, a scheme that hides in
// another's credentials (Laravel looks for the last "Bearer " there is).
func bearer(fields []string) (string, error) {
	field, err := one(fields)
	if err != nil || field == "" {
		return "", err
	}
	scheme, text, ok := strings.Cut(field, " ")
	if !ok || !httpguts.ValidHeaderFieldName(scheme) || !isPlainText(text) || text == "" {
		return "", fmt.Errorf("%w: Authorization is not a scheme, one blank and what belongs to it", ErrAmbiguous)
	}
	switch {
	case strings.EqualFold(scheme, "Bearer") && !isToken68(text):
		return "", fmt.Errorf("%w: Authorization has more than a token after Bearer", ErrAmbiguous)
	case strings.EqualFold(scheme, "Bearer"):
		return text, nil
	case strings.Contains(strings.ToLower(text), "bearer "):
		return "", fmt.Errorf("%w: Authorization has a Bearer within another scheme", ErrAmbiguous)
	}
	return "", nil
}

// isToken68 reports whether s is what a bearer token is made of (RFC 6750 section
// 2.1).
func isToken68(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && !isDigit(c) && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return s != ""
}
