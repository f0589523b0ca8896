package key

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-proxy/weir/test/filetest"
)

const secret = "a secret of at least thirty-two bytes"

// A ring holds one private key of each family.
type ring struct {
	rsa  *rsa.PrivateKey
	ec   *ecdsa.PrivateKey
	ed   ed25519.PrivateKey
	p384 *ecdsa.PrivateKey
}

func newRing(t *testing.T) ring {
	t.Helper()
	var r ring
	var errs [4]error
	r.rsa, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
	r.ec, errs[1] = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, r.ed, errs[2] = ed25519.GenerateKey(rand.Reader)
	r.p384, errs[3] = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return r
}

// pemFile writes the public key to a file.
func pemFile(t *testing.T, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A signer is a key and how it is used.
type signer struct {
	method jwt.SigningMethod
	key    any
}

// signed is a token that is valid for an hour unless claims say otherwise.
func signed(t *testing.T, by signer, claims jwt.MapClaims, header ...string) string {
	t.Helper()
	all := jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	token := jwt.NewWithClaims(by.method, all)
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i]] = header[i+1]
	}
	text, err := token.SignedString(by.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mustTokens(t testing.TB, c TokenConfig) *Tokens {
	t.Helper()
	tokens, err := NewTokens(c)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func opened(t *testing.T, c TokenConfig) *Tokens {
	t.Helper()
	tokens := mustTokens(t, c)
	if err := tokens.Open(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	return tokens
}

func claimOf(tokens *Tokens, name string) *Spec {
	s := of("jwt:" + name)
	s.Tokens = tokens
	return s
}

func TestTokens_EachFamilyVerifiesItsOwn(t *testing.T) {
	keys := newRing(t)
	for name, c := range map[string]struct {
		method jwt.SigningMethod
		sign   any
		config TokenConfig
	}{
		"HS256": {jwt.SigningMethodHS256, []byte(secret), TokenConfig{Secret: []byte(secret)}},
		"HS512": {jwt.SigningMethodHS512, []byte(secret), TokenConfig{Secret: []byte(secret)}},
		"RS256": {jwt.SigningMethodRS256, keys.rsa, TokenConfig{Files: []string{pemFile(t, keys.rsa.Public())}}},
		"PS384": {jwt.SigningMethodPS384, keys.rsa, TokenConfig{Files: []string{pemFile(t, keys.rsa.Public())}}},
		"ES256": {jwt.SigningMethodES256, keys.ec, TokenConfig{Files: []string{pemFile(t, keys.ec.Public())}}},
		"ES384": {jwt.SigningMethodES384, keys.p384, TokenConfig{Files: []string{pemFile(t, keys.p384.Public())}}},
		"EdDSA": {jwt.SigningMethodEdDSA, keys.ed, TokenConfig{Files: []string{pemFile(t, keys.ed.Public())}}},
		"two keys": {jwt.SigningMethodEdDSA, keys.ed, TokenConfig{
			Secret: []byte(secret), Files: []string{pemFile(t, keys.rsa.Public()), pemFile(t, keys.ed.Public())},
		}},
	} {
		tokens := opened(t, c.config)
		good := signed(t, signer{c.method, c.sign}, nil)
		if got, err := extract(claimOf(tokens, "sub"), bears(good)); err != nil || got != "alice" {
			t.Errorf("%s: %q, %v; want alice", name, got, err)
		}
		bad := good[:len(good)-8] + "AAAAAAAA"
		if got, err := extract(claimOf(tokens, "sub"), bears(bad)); !errors.Is(err, ErrInvalid) || got != "" {
			t.Errorf("%s, signature changed: %q, %v; want ErrInvalid", name, got, err)
		}
	}
}

// forge changes the claims of a token and keeps its signature.
func forge(token, claims string) string {
	parts := strings.Split(token, ".")
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(claims))
	return strings.Join(parts, ".")
}

// unsigned is a token of this header with an empty signature.
func unsigned(header, claims string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "."
}

func TestTokens_RefusesForgeries(t *testing.T) {
	keys := newRing(t)
	other := newRing(t)
	public := pemFile(t, keys.rsa.Public())
	text := filetest.Read(t, public)
	der, _ := pem.Decode(text)
	tokens := opened(t, TokenConfig{Files: []string{public, pemFile(t, keys.ec.Public())}, Issuer: "https://issuer", Audience: []string{"weir", "sms"}})
	ours := jwt.MapClaims{"iss": "https://issuer", "aud": "weir"}
	mine := func(more ...any) jwt.MapClaims {
		all := jwt.MapClaims{"iss": ours["iss"], "aud": ours["aud"]}
		for i := 0; i < len(more); i += 2 {
			all[more[i].(string)] = more[i+1]
		}
		return all
	}
	good := signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, ours)
	const claims = `{"sub":"bob","iss":"https://issuer","aud":"weir","exp":99999999999}`
	for name, token := range map[string]string{
		"no signature":             unsigned(`{"alg":"none"}`, claims),
		"no signature, other case": unsigned(`{"alg":"None"}`, claims),
		"no alg":                   unsigned(`{}`, claims),
		"claims changed":           forge(good, claims),
		"signature dropped":        good[:strings.LastIndex(good, ".")+1],
		"public key as secret":     signed(t, signer{jwt.SigningMethodHS256, text}, ours),
		"public DER as secret":     signed(t, signer{jwt.SigningMethodHS256, der.Bytes}, ours),
		"no secret":                signed(t, signer{jwt.SigningMethodHS256, []byte{}}, ours),
		"somebody else's RSA":      signed(t, signer{jwt.SigningMethodRS256, other.rsa}, ours),
		"somebody else's EC":       signed(t, signer{jwt.SigningMethodES256, other.ec}, ours),
		"a family that has no key": signed(t, signer{jwt.SigningMethodEdDSA, keys.ed}, ours),
		"a curve that has no key":  signed(t, signer{jwt.SigningMethodES384, keys.p384}, ours),
		"expired":                  signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("exp", time.Now().Add(-time.Second).Unix())),
		"never expires":            signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("exp", nil)),
		"expires at no time":       signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("exp", "tomorrow")),
		"not yet":                  signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("nbf", time.Now().Add(time.Hour).Unix())),
		"another issuer":           signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("iss", "https://evil")),
		"no issuer":                signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("iss", nil)),
		"another audience":         signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("aud", []string{"x"})),
		"AUD for aud":              signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("aud", nil, "AUD", "weir")),
		"an issuer by two names":   signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("iss", "https://evil", "iſs", "https://issuer")),
		"Exp for exp":              signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("exp", nil, "Exp", 99999999999)),
		"ISS for iss":              signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("iss", nil, "ISS", "https://issuer")),
		"no audience":              signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, mine("aud", nil)),
		"critical extension":       signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, ours, "crit", "b64"),
		"two parts":                "a.b",
		"four parts":               good + ".x",
		"padded":                   good + "=",
		"no base64":                "~~~.~~~.~~~",
		"no JSON":                  "YQ.YQ.YQ",
	} {
		got, err := extract(claimOf(tokens, "sub"), bears(token))
		if !errors.Is(err, ErrInvalid) || got != "" {
			t.Errorf("%s: %q, %v; want ErrInvalid", name, got, err)
		}
		secretless(t, err, "alice", "bob", "evil")
	}
	if got, err := extract(claimOf(tokens, "sub"), bears(signed(t, signer{jwt.SigningMethodES256, keys.ec}, mine("sub", 42)))); err != nil || got != "42" {
		t.Errorf("a number: %q, %v; want 42", got, err)
	}
	for _, token := range []string{good, signed(t, signer{jwt.SigningMethodES256, keys.ec}, mine("aud", []string{"x", "sms"}))} {
		if got, err := extract(claimOf(tokens, "sub"), bears(token)); err != nil || got != "alice" {
			t.Errorf("a good one: %q, %v", got, err)
		}
	}
}

func TestTokens_OnlyMethodsGiven(t *testing.T) {
	keys := newRing(t)
	tokens := opened(t, TokenConfig{Files: []string{pemFile(t, keys.rsa.Public())}, Methods: []string{"RS256"}})
	if _, err := extract(claimOf(tokens, "sub"), bears(signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, nil))); err != nil {
		t.Errorf("RS256 = %v", err)
	}
	if _, err := extract(claimOf(tokens, "sub"), bears(signed(t, signer{jwt.SigningMethodRS512, keys.rsa}, nil))); !errors.Is(err, ErrInvalid) {
		t.Errorf("RS512 = %v; want ErrInvalid", err)
	}
}

func TestTokens_Leeway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := opened(t, TokenConfig{Secret: []byte(secret), Leeway: 30 * time.Second})
		m := bears(signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, jwt.MapClaims{"exp": time.Now().Add(time.Minute).Unix()}))
		for _, c := range []struct {
			after time.Duration
			want  error
		}{{59 * time.Second, nil}, {30 * time.Second, nil}, {2 * time.Second, ErrInvalid}} {
			time.Sleep(c.after) // virtual
			if _, err := extract(claimOf(tokens, "sub"), m); !errors.Is(err, c.want) {
				t.Errorf("%v later: %v; want %v", c.after, err, c.want)
			}
		}
	})
}

func TestTokens_Claims(t *testing.T) {
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	m := bears(signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, jwt.MapClaims{
		"id": 42, "https://x/a~b": "url", "list": []int{1}, "object": map[string]int{}, "yes": true, "nothing": json.RawMessage("null"), "empty": "", "Sub": "eve",
	}))
	for name, want := range map[string]string{"id": "42", "https://x/a~b": "url"} {
		if got, err := extract(claimOf(tokens, name), m); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]error{
		"list": ErrInvalid, "object": ErrInvalid, "yes": ErrInvalid, "nothing": ErrInvalid, "none": ErrMissing, "empty": ErrMissing, "sub": ErrAmbiguous,
	} {
		if got, err := extract(claimOf(tokens, name), m); !errors.Is(err, want) {
			t.Errorf("%s = %q, %v; want %v", name, got, err, want)
		}
	}
}

func TestTokens_VerifiedOncePerRequest(t *testing.T) {
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	m := bears(signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, jwt.MapClaims{"tenant": "t1"}))
	var v Value
	if err := claimOf(tokens, "sub").Extract(m, &v); err != nil {
		t.Fatal(err)
	}
	var none []verifier
	tokens.keys.Store(&none) // whoever verifies now fails
	if err := claimOf(tokens, "tenant").Extract(m, &v); err != nil || v.Text() != "t1" {
		t.Errorf("a second claim = %q, %v; want it without verifying again", v.Text(), err)
	}
	v.Reset()
	if err := claimOf(tokens, "tenant").Extract(m, &v); !errors.Is(err, ErrNoVerificationKeys) {
		t.Errorf("after Reset = %v; want it verified again", err)
	}
}

func TestNewTokens_SaysWhatToWrite(t *testing.T) {
	for name, c := range map[string]TokenConfig{
		"a short secret": {Secret: []byte("short")},
		"http":           {JWKS: "http://issuer.example/keys"},
		"no host":        {JWKS: "https:///keys"},
		"unknown method": {Secret: []byte(secret), Methods: []string{"HS1024"}},
		"no signature":   {Secret: []byte(secret), Methods: []string{"none"}},
	} {
		if _, err := NewTokens(c); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), ";") {
			t.Errorf("%s: %v; want an ErrSpec that says what to write", name, err)
		}
	}
	for _, jwks := range []string{"https://issuer.example/keys", "http://127.0.0.1:1/", "http://[::1]/", "http://localhost/keys", "keys.json"} {
		if _, err := NewTokens(TokenConfig{JWKS: jwks}); err != nil {
			t.Errorf("%s: %v", jwks, err)
		}
	}
}

func BenchmarkTokens(b *testing.B) {
	tokens := mustTokens(b, TokenConfig{Secret: []byte(secret)})
	if err := tokens.Open(b.Context(), nil, nil); err != nil {
		b.Fatal(err)
	}
	defer tokens.Close()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "alice", "exp": 99999999999}).SignedString([]byte(secret))
	if err != nil {
		b.Fatal(err)
	}
	s, m := claimOf(tokens, "sub"), bears(text)
	b.ReportAllocs()
	var v Value
	for b.Loop() {
		v.Reset()
		if err := s.Extract(m, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTokens_Bearer(t *testing.T) {
	tokens := opened(t, TokenConfig{Secret: []byte(secret)})
	good := signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil)
	for _, c := range []struct {
		fields []string
		want   error
	}{
		{[]string{"Bearer " + good}, nil},
		{[]string{"bearer " + good}, nil},
		{[]string{"bearer  " + good}, ErrAmbiguous},
		{[]string{"Bearer\t" + good}, ErrAmbiguous},
		{[]string{"Bearer \t" + good}, ErrAmbiguous},
		{[]string{"Bearer " + good + " "}, ErrAmbiguous},
		{[]string{" Bearer " + good}, ErrAmbiguous},
		{[]string{"Bearer:" + good}, ErrAmbiguous},
		{[]string{"Bearer: " + good}, ErrAmbiguous},
		{[]string{"Bearer " + good + " x"}, ErrAmbiguous},
		{[]string{"Bearer \"" + good + "\""}, ErrAmbiguous},
		{[]string{"Bearer\u00a0" + good}, ErrAmbiguous},
		{[]string{"Basic  YTpi"}, ErrAmbiguous},
		{[]string{"Basic YTpi, Bearer " + good}, ErrAmbiguous},
		{[]string{"Foo bearer " + good}, ErrAmbiguous},
		{[]string{"Digest username=\"a\", realm=\"b\""}, ErrMissing},
		{nil, ErrMissing},
		{[]string{""}, ErrMissing},
		{[]string{"Basic YTpi"}, ErrMissing},
		{[]string{good}, ErrAmbiguous},
		{[]string{"Bearer"}, ErrAmbiguous},
		{[]string{"Bearer "}, ErrAmbiguous},
		{[]string{"Bearer " + good + ", Bearer " + good}, ErrAmbiguous},
		{[]string{"Bearer " + good, "Bearer " + good}, ErrAmbiguous},
		{[]string{"Basic YTpi", "Bearer " + good}, ErrAmbiguous},
	} {
		if _, err := extract(claimOf(tokens, "sub"), sends("", "").with("Authorization", c.fields...)); !errors.Is(err, c.want) {
			t.Errorf("%q: %v; want %v", c.fields, err, c.want)
		}
	}
}

func TestTokens_OpenRefusesFilesThatAreNoKeys(t *testing.T) {
	keys := newRing(t)
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(keys.ec)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) string { return filetest.Files(t, "key.pem", text) }
	for name, file := range map[string]string{
		"no such file":   filepath.Join(t.TempDir(), "none.pem"),
		"no PEM":         write("hello"),
		"empty":          write(""),
		"a private key":  write(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))),
		"broken":         write(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}))),
		"a weak RSA key": pemFile(t, small.Public()),
	} {
		tokens := mustTokens(t, TokenConfig{Files: []string{file}})
		if err := tokens.Open(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s: %v; want an error that names the file", name, err)
		}
		if _, err := extract(claimOf(tokens, "sub"), bears("x.y.z")); err == nil {
			t.Errorf("%s: a token was taken", name)
		}
		tokens.Close()
	}
}

func TestPublicKey_TiedToItsFamily(t *testing.T) {
	keys := newRing(t)
	for _, c := range []struct {
		key  any
		want []string
	}{
		{keys.rsa.Public(), rsaMethods()}, {keys.ec.Public(), []string{"ES256"}}, {keys.p384.Public(), []string{"ES384"}}, {keys.ed.Public(), []string{"EdDSA"}},
	} {
		if v, err := publicKey(c.key); err != nil || !slices.Equal(v.methods, c.want) {
			t.Errorf("%T verifies %v, %v; want %v", c.key, v.methods, err, c.want)
		}
	}
	for _, key := range []any{[]byte(secret), keys.rsa, nil} {
		if v, err := publicKey(key); err == nil {
			t.Errorf("%T verifies %v; want an error", key, v.methods)
		}
	}
}
