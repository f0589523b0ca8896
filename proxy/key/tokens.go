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
	minSecret      = 32 // bytes; RFC 7518 section 3.2 requires the size of the hash
	defaultRefresh = 5 * time.Minute
)

// A TokenConfig configures the verification of tokens.
type TokenConfig struct {
	// Secret is the key for HS256, HS384 and HS512, at least 32 bytes. If it is empty, such
	// tokens are refused.
	Secret []byte
	// Files are the names of PEM files with public keys or certificates.
	Files []string
	// JWKS is the location of a JSON Web Key Set (RFC 7517): an https URL, an http URL of
	// this machine, or a file name. Encryption keys and secret keys in it are ignored.
	JWKS string
	// Methods lists the accepted signature algorithms, such as RS256; empty accepts all
	// that fit the keys. "none" is never accepted.
	Methods []string
	// Issuer is the required iss, and Audience lists accepted values of aud, unless they
	// are empty.
	Issuer   string
	Audience []string
	// Leeway is the tolerated clock skew of the issuer.
	Leeway time.Duration
	// Refresh is the interval at which JWKS is reloaded; 5 minutes if zero.
	Refresh time.Duration
	// Client fetches JWKS; if nil, one with a timeout of 10 s is used.
	Client *http.Client
	// Report, unless nil, is called with each error of reloading JWKS. The current keys
	// stay in use.
	Report func(error)
}

// Tokens verifies bearer tokens (JWT, RFC 7519). Open loads the keys, and Close stops
// reloading them. It is safe for concurrent use.
type Tokens struct {
	config TokenConfig
	parser *jwt.Parser
	fixed  []verifier
	keys   atomic.Pointer[[]verifier] // current keys; nil before Open
	wanted chan struct{}              // a token named an unknown key

	closing context.CancelFunc
	loop    sync.WaitGroup
}

// NewTokens validates c. It opens no file and no connection. Errors wrap ErrSpec and
// contain what to write.
func NewTokens(c TokenConfig) (*Tokens, error) {
	switch {
	case len(c.Secret) == 0 && len(c.Files) == 0 && c.JWKS == "":
		return nil, fmt.Errorf("%w: tokens without keys; give a secret, files with public keys, or a jwks", ErrSpec)
	case len(c.Secret) > 0 && len(c.Secret) < minSecret:
		return nil, fmt.Errorf("%w: a secret of %d bytes; it needs at least %d", ErrSpec, len(c.Secret), minSecret)
	case c.Leeway < 0 || c.Refresh < 0:
		return nil, fmt.Errorf("%w: a leeway or a refresh below zero; write a time such as 30s", ErrSpec)
	case !trusted(c.JWKS):
		return nil, fmt.Errorf("%w: a jwks without TLS; write an https URL, or the name of a file", ErrSpec)
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

// trusted reports whether only the owner can change the content at jwks.
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

// Open loads the keys, and reloads those of a JWKS until Close. If a file cannot be read or
// has no key, it returns an error, and nothing is open. If a URL does not respond, it
// returns an error that wraps ErrNoVerificationKeys; Tokens is then open, tries again, and
// refuses tokens with ErrNoVerificationKeys until it has keys. Open must be called only
// once.
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
	t.loop.Go(func() { t.refreshLoop(life) })
	if err != nil {
		return errors.Join(ErrNoVerificationKeys, err)
	}
	return nil
}

// Close stops the reloading and waits for it. Tokens still verifies tokens with the current
// keys. Close may be called several times, and without Open.
func (t *Tokens) Close() {
	if t.closing != nil {
		t.closing()
	}
	t.loop.Wait()
}
