package config

import (
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/key"
)

// tokens makes what verifies bearer tokens; nil when nothing is said of them.
// Files are named relative to the main file. Nothing is opened.
func (r *loader) tokens(f *jwtForm) *key.Tokens {
	if f == nil || f.Secret == "" && len(f.Keys) == 0 && f.JWKS == "" {
		return nil
	}
	c := key.TokenConfig{
		Secret: []byte(f.Secret), Methods: f.Methods, Issuer: f.Issuer, Audience: f.Audience,
		JWKS: f.JWKS, Leeway: time.Duration(f.Leeway),
	}
	for i := range f.Keys {
		c.Files = append(c.Files, r.opens(&f.Keys[i]))
	}
	if f.JWKS != "" && !strings.Contains(f.JWKS, "://") {
		c.JWKS = r.opens(&f.JWKS)
	}
	tokens, err := key.NewTokens(c)
	if err != nil {
		what, instead, _ := strings.Cut(err.Error(), "; ")
		r.Wrong(f, what, instead)
	}
	return tokens
}
