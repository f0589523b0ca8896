package key

import (
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// maxTokenID is the maximum length of the claim jti in bytes.
const maxTokenID = 255

// A Solution is what a token says of a client that has solved a challenge.
type Solution struct {
	ID        string // jti: no two tokens have the same
	Challenge string // the name of the challenge
	Subject   string // sub: for whom it was solved
}

// challengeClaims are the claims of a token with a Solution.
type challengeClaims struct {
	jwt.RegisteredClaims
	Challenge string `json:"challenge"`
}

// Solution returns what a token says that is signed with one of the keys, has not expired and was issued less than
// maxAge ago. Other tokens, bearer tokens among them, have no claim challenge or no jti. Errors wrap ErrInvalid or
// ErrNoVerificationKeys; see TokenProblem.
func (t *Tokens) Solution(text string, maxAge time.Duration) (Solution, error) {
	if t == nil {
		return Solution{}, ErrNoVerificationKeys
	}
	var c challengeClaims
	if _, err := t.parser.ParseWithClaims(text, &c, t.candidates); err != nil {
		return Solution{}, explainError(err)
	}
	refused := func(why string) (Solution, error) { return Solution{}, &tokenError{ErrInvalid, why} }
	now := time.Now()
	switch {
	case c.IssuedAt == nil || c.ID == "" || c.Challenge == "" || c.Subject == "":
		return refused("lacks one of the claims iat, jti, challenge and sub")
	case len(c.ID) > maxTokenID:
		return refused("has a jti that is too long")
	case now.Before(c.IssuedAt.Add(-t.config.Leeway)):
		return refused("was issued in the future")
	case !now.Before(c.IssuedAt.Add(maxAge + t.config.Leeway)):
		return refused("is too old")
	}
	return Solution{c.ID, c.Challenge, c.Subject}, nil
}

// Leeway returns the tolerated clock skew of the issuer.
func (t *Tokens) Leeway() time.Duration {
	if t == nil {
		return 0
	}
	return t.config.Leeway
}
