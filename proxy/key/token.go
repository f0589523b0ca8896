package key

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// A token is the bearer token of a request, verified once.
type token struct {
	verifiedBy *Tokens
	text       string
	claims     []byte // as JSON
	err        error
}

// claim returns a claim of the request's token, "" if there is no token. The claim must be
// a string or a number.
func (t *Tokens) claim(r Request, v *Value, name string) (result, error) {
	if t == nil { // Spec.Check does not allow such a spec
		return result{}, ErrNoVerificationKeys
	}
	text, err := bearer(r.Header("Authorization"))
	switch {
	case err != nil:
		return result{}, err
	case text == "":
		return result{}, errNoToken
	}
	if v.token.verifiedBy != t || v.token.text != text {
		claims, err := t.verify(text)
		v.token = token{t, text, claims, err}
	}
	if v.token.err != nil {
		return result{}, v.token.err
	}
	f, err := v.lookup(v.token.claims, pointerTo(name))
	switch {
	case err != nil:
		return result{}, err
	case f.kind == kindBool, f.kind == kindNull:
		return result{}, &tokenError{ErrInvalid, "has a claim that is neither a string nor a number"}
	case f.text == "":
		return result{}, &tokenError{ErrMissing, "lacks the claim"}
	case f.kind == kindNumber:
		return canonical(f)
	}
	return f, nil
}

// verify returns the claims of a token that is signed with one of the keys, is already
// valid and has not expired. Otherwise the error is ErrInvalid, or ErrNoVerificationKeys
// while no keys are known. It does not wait.
func (t *Tokens) verify(text string) ([]byte, error) {
	_, err := t.parser.ParseWithClaims(text, &jwt.RegisteredClaims{}, t.candidates)
	if err != nil {
		return nil, explainError(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	if err != nil {
		return nil, &tokenError{ErrInvalid, "is malformed"}
	}
	return claims, nil
}

// candidates returns the keys that may have signed a token.
func (t *Tokens) candidates(token *jwt.Token) (any, error) {
	keys := t.keys.Load()
	if keys == nil || len(*keys) == 0 {
		return nil, ErrNoVerificationKeys
	}
	if _, ok := token.Header["crit"]; ok { // RFC 7515 section 4.1.11: no extension is supported
		return nil, errors.New("critical extensions")
	}
	id, ok := token.Header["kid"].(string)
	if _, given := token.Header["kid"]; given && !ok {
		return nil, errors.New("key id is not a string")
	}
	var set jwt.VerificationKeySet
	for _, v := range *keys {
		if v.fits(id, token.Method.Alg()) {
			set.Keys = append(set.Keys, v.key)
		}
	}
	if len(set.Keys) == 0 {
		t.requestRefresh()
		return nil, errors.New("no such key")
	}
	return set, nil
}

// explainError describes the error of a token without its contents.
func explainError(err error) error {
	if errors.Is(err, ErrNoVerificationKeys) {
		return ErrNoVerificationKeys
	}
	why := "is malformed"
	for _, c := range []struct {
		is  error
		why string
	}{
		{jwt.ErrTokenUnverifiable, "is signed with an unknown key, or with an algorithm that is not accepted"},
		{jwt.ErrTokenSignatureInvalid, "has an invalid signature, or one of an algorithm that is not accepted"},
		{jwt.ErrTokenExpired, "has expired"},
		{jwt.ErrTokenNotValidYet, "is not valid yet"},
		{jwt.ErrTokenInvalidIssuer, "is from another issuer"},
		{jwt.ErrTokenInvalidAudience, "is for another audience"},
		{jwt.ErrTokenRequiredClaimMissing, "lacks a claim that it must have"},
	} {
		if errors.Is(err, c.is) {
			why = c.why
			break
		}
	}
	return &tokenError{ErrInvalid, why}
}

// errNoToken reports a request without a bearer token.
var errNoToken = &tokenError{ErrMissing, ""}

// A tokenError reports that a bearer token is missing, or why it is not accepted.
type tokenError struct {
	kind error  // ErrMissing or ErrInvalid
	why  string // what is said of the token; empty without one
}

// Error implements error.
func (e *tokenError) Error() string {
	if e.why == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": the token " + e.why
}

// Unwrap returns the kind of the error.
func (e *tokenError) Unwrap() error { return e.kind }

// TokenProblem says why a token is not accepted, for its client.
func TokenProblem(err error) string {
	var t *tokenError
	if errors.As(err, &t) {
		return "the token " + t.why
	}
	return "there are no keys to verify the token with"
}

// Challenge returns the WWW-Authenticate of the response to a request whose key could not be read because
// of its bearer token, and "" for all other errors (RFC 6750 section 3). The realm is a host.
func Challenge(err error, realm string) string {
	var t *tokenError
	if !errors.As(err, &t) {
		return ""
	}
	challenge := `Bearer realm="` + realm + `"`
	if t.why != "" {
		challenge += `, error="invalid_token", error_description="the token ` + t.why + `"`
	}
	return challenge
}
