package key

import (
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// bearer returns the token of the Authorization field, "" if the field has another scheme.
// Credentials that servers parse differently are ErrAmbiguous, so that a request for which
// the upstream finds a token is never treated as one without: several spaces after the
// scheme, a tab, a token without a scheme, a scheme within other credentials (Laravel takes
// the last "Bearer ").
func bearer(fields []string) (string, error) {
	field, err := single(fields)
	if err != nil || field == "" {
		return "", err
	}
	scheme, text, ok := strings.Cut(field, " ")
	if !ok || !httpguts.ValidHeaderFieldName(scheme) || !isPlainText(text) || text == "" {
		return "", fmt.Errorf("%w: Authorization is not a scheme, one space and credentials", ErrAmbiguous)
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

// isToken68 reports whether s has the syntax of a bearer token (token68, RFC 6750 section
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
