package key

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	minSecret      = 32 // bytes; RFC 7518 section 3.2 asks for as many as the hash has
	defaultRefresh = 5 * time.Minute
)

// A TokenConfig says which tokens are believed.
type TokenConfig struct {
	// Secret verifies HS256, HS384 and HS512. It has at least 32 bytes; empty
	// means that such tokens are refused.
	Secret []byte
	// Files name PEM files with public keys or certificates.
	Files []string
	// JWKS is a set of public keys (RFC 7517): an https URL, an http URL of this
	// machine, or the name of a file. Keys for encryption and secret keys in it
	// are left out.
	JWKS string
	// Methods lists the algorithms that tokens may be signed with, such as RS256;
	// empty means all that fit the keys. "none" is never among them.
	Methods []string
	// Issuer must be the token's iss, and one of Audience among its aud, unless
	// they are empty.
	Issuer   string
	Audience []string
	// Leeway is by how much the issuer's clock may be wrong.
	Leeway time.Duration
	// Refresh is how often JWKS is read again; 5 minutes when zero.
	Refresh time.Duration
	// Client fetches JWKS; nil means one that gives up after 10 s.
	Client *http.Client
	// Report, unless nil, is told each time that JWKS could not be read again.
	// The keys known until then stay in force.
	Report func(error)
}

// Tokens verifies the bearer tokens (JWT, RFC 7519) of requests. Open reads the
// keys, and Close ends what Open began. It is safe for concurrent use.
type Tokens struct {
	config TokenConfig
	parser *jwt.Parser
	fixed  []verifier
	keys   atomic.Pointer[[]verifier] // all in force; nil before Open
	wanted chan struct{}              // a token named a key that is not known

	closing context.CancelFunc
	loop    sync.WaitGroup
}

// NewTokens checks c. It opens and dials nothing. Errors wrap ErrSpec and say
// what to write.
func NewTokens(c TokenConfig) (*Tokens, error) {
	switch {
	case len(c.Secret) == 0 && len(c.Files) == 0 && c.JWKS == "":
		return nil, fmt.Errorf("%w: tokens without keys; give a secret, files with public keys, or a jwks", ErrSpec)
	case len(c.Secret) > 0 && len(c.Secret) < minSecret:
		return nil, fmt.Errorf("%w: a secret of %d bytes; it needs at least %d", ErrSpec, len(c.Secret), minSecret)
	case c.Leeway < 0 || c.Refresh < 0:
		return nil, fmt.Errorf("%w: a leeway or a refresh below zero; write a time such as 30s", ErrSpec)
	case !trusted(c.JWKS):
		return nil, fmt.Errorf("%w: a jwks that anybody on the way could replace; write an https URL, or the name of a file", ErrSpec)
	}
	all := slices.Concat(hmacMethods(), rsaMethods(), []string{"ES256", "ES384", "ES512", "EdDSA"})
	for _, m := range c.Methods {
		if !slices.Contains(all, m) {
			return nil, fmt.Errorf("%w: %q is not a signature algorithm; write some of %s", ErrSpec, m, strings.Join(all, ", "))
		}
	}
	t := &Tokens{config: c, wanted: make(chan struct{}, 1)}
	t.config.Secret, t.config.Files = bytes.Clone(c.Secret), slices.Clone(c.Files)
	if len(c.Methods) > 0 {
		all = slices.Clone(c.Methods)
	}
	options := []jwt.ParserOption{jwt.WithValidMethods(all), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(), jwt.WithLeeway(c.Leeway)}
	if c.Issuer != "" {
		options = append(options, jwt.WithIssuer(c.Issuer))
	}
	if len(c.Audience) > 0 {
		options = append(options, jwt.WithAudience(slices.Clone(c.Audience)...))
	}
	t.parser = jwt.NewParser(options...)
	return t, nil
}

// trusted reports whether nobody but its owner can change what stands at jwks.
func trusted(jwks string) bool {
	if !remote(jwks) {
		return true
	}
	u, err := url.Parse(jwks)
	if err != nil || u.Host == "" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

func remote(jwks string) bool {
	return strings.HasPrefix(jwks, "http://") || strings.HasPrefix(jwks, "https://")
}

// Open reads the keys and keeps those of a JWKS fresh until Close. A file that
// cannot be read, or holds no key, is an error, and then nothing is open. A URL
// that does not answer is an error that wraps ErrNoKeys: Tokens is open then,
// goes on asking, and refuses tokens with ErrNoKeys until it has an answer.
// Open is called once.
func (t *Tokens) Open(ctx context.Context) error {
	if len(t.config.Secret) > 0 {
		t.fixed = append(t.fixed, verifier{methods: hmacMethods(), key: t.config.Secret})
	}
	for _, name := range t.config.Files {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read keys of tokens: %w", err)
		}
		keys, err := pemKeys(text)
		if err != nil {
			return fmt.Errorf("read keys of tokens in %s: %w", name, err)
		}
		t.fixed = append(t.fixed, keys...)
	}
	fixed := t.fixed
	t.keys.Store(&fixed)
	if t.config.JWKS == "" {
		return nil
	}
	err := t.refresh(ctx)
	if err != nil && !remote(t.config.JWKS) {
		return err
	}
	life, closing := context.WithCancel(context.WithoutCancel(ctx))
	t.closing = closing
	t.loop.Go(func() { t.keep(life) })
	if err != nil {
		return errors.Join(ErrNoVerificationKeys, err)
	}
	return nil
}

// Close ends the refreshing and waits for its end. Tokens still verifies with the
// keys it has. Closing twice, or what was never opened, does no harm.
func (t *Tokens) Close() {
	if t.closing != nil {
		t.closing()
	}
	t.loop.Wait()
}
