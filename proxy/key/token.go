package key

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
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

	"github.com/go-json-experiment/json/jsontext"
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
// a string or a number. Spec.Check sees to it that t is not nil.
func (t *Tokens) claim(r Request, v *Value, name string) (result, error) {
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
	f, err := v.lookup(v.token.claims, string(jsontext.Pointer("").AppendToken(name)))
	switch {
	case err != nil:
		return result{}, err
	case f.kind != 0 && f.kind != jsontext.KindNumber:
		return result{}, &tokenError{ErrInvalid, "has a claim that is neither a string nor a number"}
	case f.text == "":
		return result{}, &tokenError{ErrMissing, "lacks the claim"}
	case f.kind == jsontext.KindNumber:
		text, err := numeralText(f.text)
		return result{text: text}, err
	}
	return f, nil
}

// verify returns the claims of a token that is signed with one of the keys, is already
// valid and has not expired. Otherwise the error is ErrInvalid, or ErrNoVerificationKeys
// while no keys are known. It does not wait.
func (t *Tokens) verify(text string) ([]byte, error) {
	// A struct would take Exp for exp, as encoding/json does, and "iſs" for iss; a map does not.
	if _, err := t.parser.ParseWithClaims(text, jwt.MapClaims{}, t.candidates); err != nil {
		return nil, withoutContents(err)
	}
	return base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1]) // as the parser has done
}

// candidates returns the keys that may have signed a token.
func (t *Tokens) candidates(token *jwt.Token) (any, error) {
	if _, ok := token.Header["crit"]; ok { // RFC 7515 section 4.1.11: no extension is supported
		return nil, errors.New("critical extensions")
	}
	id, ok := token.Header["kid"].(string)
	if _, given := token.Header["kid"]; given && !ok {
		return nil, errors.New("key id is not a string")
	}
	var set jwt.VerificationKeySet
	keys := *t.keys.Load()
	for _, v := range keys {
		if v.fits(id, token.Method.Alg()) {
			set.Keys = append(set.Keys, v.key)
		}
	}
	if len(set.Keys) > 0 {
		return set, nil
	}
	t.requestRefresh()
	if len(keys) == 0 || t.config.JWKS != "" && len(keys) == len(t.fixed) { // it may be in the set, which was not loaded yet
		return nil, ErrNoVerificationKeys
	}
	return nil, errors.New("no such key")
}

// withoutContents describes the error of a token without its contents.
func withoutContents(err error) error {
	if errors.Is(err, ErrNoVerificationKeys) {
		return ErrNoVerificationKeys
	}
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
			return &tokenError{ErrInvalid, c.why}
		}
	}
	return &tokenError{ErrInvalid, "is malformed"}
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
	if t, ok := errors.AsType[*tokenError](err); ok {
		return "the token " + t.why
	}
	return "there are no keys to verify the token with"
}

// Challenge returns the WWW-Authenticate of the response to a request whose key could not be read because
// of its bearer token, and "" for all other errors (RFC 6750 section 3). The realm is a host.
func Challenge(err error, realm string) string {
	t, ok := errors.AsType[*tokenError](err)
	if !ok {
		return ""
	}
	challenge := `Bearer realm="` + realm + `"`
	if t.why != "" {
		challenge += `, error="invalid_token", error_description="the token ` + t.why + `"`
	}
	return challenge
}

const minSecret = 32 // bytes; RFC 7518 section 3.2 requires the size of the hash

// A TokenConfig configures the verification of tokens. It has a Secret, Files or JWKS.
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
	// Leeway is the tolerated clock skew of the issuer, 0 or more.
	Leeway time.Duration
	// Transport fetches JWKS; nil is http.DefaultTransport.
	Transport http.RoundTripper
}

// Tokens verifies bearer tokens (JWT, RFC 7519). Open loads the keys, and Close stops
// reloading them. It is safe for concurrent use.
type Tokens struct {
	config TokenConfig
	jwks   *url.URL // the zero URL for a file
	parser *jwt.Parser
	fixed  []verifier
	keys   atomic.Pointer[[]verifier] // current keys; none before Open
	wanted chan struct{}              // a token named an unknown key

	closing context.CancelFunc
	loop    sync.WaitGroup
}

// NewTokens validates c. It opens no file and no connection. Errors wrap ErrSpec and
// contain what to write.
func NewTokens(c TokenConfig) (*Tokens, error) {
	at, err := new(url.URL), error(nil)
	isURL := strings.HasPrefix(c.JWKS, "http://") || strings.HasPrefix(c.JWKS, "https://")
	if isURL {
		at, err = url.Parse(c.JWKS)
	}
	switch {
	case len(c.Secret) > 0 && len(c.Secret) < minSecret:
		return nil, fmt.Errorf("%w: a secret of %d bytes; it needs at least %d", ErrSpec, len(c.Secret), minSecret)
	case isURL && (err != nil || !trusted(at)):
		return nil, fmt.Errorf("%w: a jwks without TLS; write an https URL, or the name of a file", ErrSpec)
	}
	all := slices.Concat(hmacMethods(), rsaMethods(), []string{"ES256", "ES384", "ES512", "EdDSA"})
	for _, m := range c.Methods {
		if !slices.Contains(all, m) {
			return nil, fmt.Errorf("%w: %q is not a signature algorithm; write some of %s", ErrSpec, m, strings.Join(all, ", "))
		}
	}
	t := &Tokens{config: c, jwks: at, wanted: make(chan struct{}, 1)}
	t.keys.Store(new([]verifier))
	t.config.Secret, t.config.Files = bytes.Clone(c.Secret), slices.Clone(c.Files)
	if len(c.Methods) > 0 {
		all = slices.Clone(c.Methods)
	}
	t.parser = jwt.NewParser(jwt.WithValidMethods(all), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
		jwt.WithLeeway(c.Leeway), jwt.WithIssuer(c.Issuer), jwt.WithAudience(slices.Clone(c.Audience)...))
	return t, nil
}

// Fetches returns the URL from which Open fetches keys; "" if there is none.
func (t *Tokens) Fetches() string { return t.jwks.String() }

// Location returns JWKS without a password.
func (t *Tokens) Location() string { return cmp.Or(t.jwks.Redacted(), t.config.JWKS) }

// trusted reports whether only the owner can change the content at u.
func trusted(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Host != "" && (u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// Open loads the keys, and reloads those of a JWKS until Close. report is called with each error of
// reloading; the current keys stay in use. If a file cannot be read or
// has no key, it returns an error, and nothing is open. If a URL does not respond, that is reported, and the keys that
// one of earlier has loaded from it stay in use. If there are none, Open
// returns an error that wraps ErrNoVerificationKeys; Tokens is then open, tries again soon after a token has come, and
// refuses tokens with ErrNoVerificationKeys until it has keys. Open must be called only
// once.
func (t *Tokens) Open(ctx context.Context, earlier []*Tokens, report func(error)) error {
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
	t.keys.Store(new(t.fixed))
	if t.config.JWKS == "" {
		return nil
	}
	err := t.refresh(ctx)
	if err != nil && t.Fetches() == "" {
		return err
	}
	for _, e := range earlier {
		if keys := *e.keys.Load(); err != nil && e.config.JWKS == t.config.JWKS && len(keys) > len(e.fixed) {
			t.keys.Store(new(slices.Concat(t.fixed, keys[len(e.fixed):])))
			report(err)
			err = nil
		}
	}
	life, closing := context.WithCancel(context.WithoutCancel(ctx))
	t.closing = closing
	t.loop.Go(func() { t.refreshLoop(life, report) })
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

// minRSA is the minimum size of an RSA key in bits (RFC 7518 section 3.3).
const minRSA = 2048

// A verifier is a key and the algorithms for which it may be used, whatever a token says
// about its algorithm: a public key is never used as an HMAC secret.
type verifier struct {
	id      string // "" fits any
	methods []string
	key     any
}

func hmacMethods() []string { return []string{"HS256", "HS384", "HS512"} }

func rsaMethods() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
}

// fits reports whether v may verify a token with this key id and algorithm.
func (v verifier) fits(id, method string) bool {
	return (id == "" || v.id == "" || v.id == id) && slices.Contains(v.methods, method)
}

// publicKey returns the verifier for a key.
func publicKey(key any) (verifier, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSA {
			return verifier{}, fmt.Errorf("an RSA key of %d bits; it needs at least %d", k.N.BitLen(), minRSA)
		}
		return verifier{methods: rsaMethods(), key: k}, nil
	case *ecdsa.PublicKey:
		if method, known := map[int]string{256: "ES256", 384: "ES384", 521: "ES512"}[k.Curve.Params().BitSize]; known {
			return verifier{methods: []string{method}, key: k}, nil
		}
	case ed25519.PublicKey:
		return verifier{methods: []string{"EdDSA"}, key: k}, nil
	}
	return verifier{}, fmt.Errorf("a key of the kind %T; give RSA, P-256, P-384, P-521 or Ed25519", key)
}

// pemKeys parses all keys of a PEM file.
func pemKeys(text []byte) ([]verifier, error) {
	var keys []verifier
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		key, err := pemKey(block)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", block.Type, err)
		}
		v, err := publicKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, v)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no public key; give a PEM file that begins with -----BEGIN PUBLIC KEY-----")
	}
	return keys, nil
}

func pemKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return certificate.PublicKey, nil
	}
	return nil, fmt.Errorf("no public key; keep private keys away, and give the public one")
}

// maxTokenID is the maximum length of the claim jti in bytes.
const maxTokenID = 255

// A Solution is what a token says of a client that has solved a challenge.
type Solution struct {
	ID        string // jti: no two tokens have the same
	Challenge string // the name of the challenge
	Subject   string // sub: for whom it was solved
}

// Solution returns what a token says that is signed with one of the keys, has not expired and was issued less than
// maxAge before now. Other tokens, bearer tokens among them, have no claim challenge or no jti. Errors wrap ErrInvalid or
// ErrNoVerificationKeys; see TokenProblem.
func (t *Tokens) Solution(text string, maxAge time.Duration, now time.Time) (Solution, error) {
	if t == nil {
		return Solution{}, ErrNoVerificationKeys
	}
	s, c := Solution{}, jwt.MapClaims{}
	if _, err := t.parser.ParseWithClaims(text, c, t.candidates); err != nil {
		return s, withoutContents(err)
	}
	s.ID, _ = c["jti"].(string)
	s.Challenge, _ = c["challenge"].(string)
	s.Subject, _ = c["sub"].(string)
	issued, _ := c.GetIssuedAt()
	refused := func(why string) (Solution, error) { return Solution{}, &tokenError{ErrInvalid, why} }
	switch {
	case issued == nil || s.ID == "" || s.Challenge == "" || s.Subject == "":
		return refused("lacks one of the claims iat, jti, challenge and sub, or one is of another type")
	case len(s.ID) > maxTokenID:
		return refused("has a jti that is too long")
	case now.Before(issued.Add(-t.config.Leeway)):
		return refused("was issued in the future")
	case !now.Before(issued.Add(maxAge + t.config.Leeway)):
		return refused("is too old")
	}
	return s, nil
}

// Leeway returns the tolerated clock skew of the issuer.
func (t *Tokens) Leeway() time.Duration {
	if t == nil {
		return 0
	}
	return t.config.Leeway
}
