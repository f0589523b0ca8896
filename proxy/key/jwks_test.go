package key

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/weir-proxy/weir/test/filetest"
)

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwk is a key of a set; more are name and value in turn.
func (r ring) jwk(family, id string, more ...string) map[string]string {
	k := map[string]string{"kid": id}
	switch family {
	case "RSA":
		k["kty"], k["n"], k["e"] = "RSA", b64(r.rsa.N.Bytes()), b64(big.NewInt(int64(r.rsa.E)).Bytes())
	case "EC":
		point, err := r.ec.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		k["kty"], k["crv"], k["x"], k["y"] = "EC", "P-256", b64(point[1:33]), b64(point[33:])
	case "OKP":
		k["kty"], k["crv"], k["x"] = "OKP", "Ed25519", b64(r.ed.Public().(ed25519.PublicKey))
	case "oct":
		k["kty"], k["k"] = "oct", b64([]byte(secret))
	}
	for i := 0; i < len(more); i += 2 {
		k[more[i]] = more[i+1]
	}
	return k
}

func set(keys ...map[string]string) string {
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestTokens_JWKS(t *testing.T) {
	keys := newRing(t)
	text := set(keys.jwk("RSA", "r1", "use", "sig"), keys.jwk("EC", "e1", "alg", "ES256"), keys.jwk("OKP", "o1"),
		keys.jwk("oct", "s1"), keys.jwk("RSA", "enc", "use", "enc"), keys.jwk("RSA", "ps", "alg", "PS256"), map[string]string{"kty": "XYZ", "kid": "x"})
	tokens := opened(t, TokenConfig{JWKS: filetest.Files(t, "keys.json", text)})
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"RSA":                     {signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, nil, "kid", "r1"), nil},
		"EC":                      {signed(t, signer{jwt.SigningMethodES256, keys.ec}, nil, "kid", "e1"), nil},
		"Ed25519":                 {signed(t, signer{jwt.SigningMethodEdDSA, keys.ed}, nil, "kid", "o1"), nil},
		"no key id":               {signed(t, signer{jwt.SigningMethodES256, keys.ec}, nil), nil},
		"the key's own algorithm": {signed(t, signer{jwt.SigningMethodPS256, keys.rsa}, nil, "kid", "ps"), nil},
		"another algorithm":       {signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, nil, "kid", "ps"), ErrInvalid},
		"another key's id":        {signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, nil, "kid", "e1"), ErrInvalid},
		"an unknown id":           {signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, nil, "kid", "r2"), ErrInvalid},
		"a key for encryption":    {signed(t, signer{jwt.SigningMethodRS256, keys.rsa}, nil, "kid", "enc"), ErrInvalid},
		"a secret in public":      {signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil, "kid", "s1"), ErrInvalid},
		"a secret, no id":         {signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil), ErrInvalid},
	} {
		if _, err := extract(claimOf(tokens, "sub"), bears(c.token)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", name, err, c.want)
		}
	}
	broken := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"sub": "alice", "exp": 99999999999})
	broken.Header["kid"] = 1
	token, err := broken.SignedString(keys.ec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := extract(claimOf(tokens, "sub"), bears(token)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a key id that is a number: %v; want ErrInvalid", err)
	}
}

// Issuers tell more of a key than Weir verifies with, and of other keys what it does not understand (RFC 7517 section 5).
func TestTokens_JWKSWithMore(t *testing.T) {
	keys := newRing(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, keys.rsa.Public(), keys.rsa)
	if err != nil {
		t.Fatal(err)
	}
	chain, digest := base64.StdEncoding.EncodeToString(der), sha1.Sum(der)
	n, e := b64(keys.rsa.N.Bytes()), b64(big.NewInt(int64(keys.rsa.E)).Bytes())
	for name, more := range map[string]string{
		"a digest in hexadecimal, as of Auth0": `"x5c":["` + chain + `"],"x5t":"` + b64([]byte(hex.EncodeToString(digest[:]))) + `"`,
		"a chain that is none":                 `"x5c":["AAAA"]`,
		"a location of a chain":                `"x5u":"::"`,
		"an unknown operation":                 `"key_ops":["verify","audit"]`,
		"another key without sense":            `"use":"sig"},{"kty":"RSA","kid":7`,
		"a key for encryption by RSA":          `"use":"sig"},{"kty":"RSA","kid":"2","alg":"RSA-OAEP","n":"` + n + `","e":"` + e + `"`,
	} {
		set := `{"keys":[{"kty":"RSA","kid":"1","alg":"RS256","n":"` + n + `","e":"` + e + `",` + more + `}]}`
		found, err := jwksKeys([]byte(set))
		if err != nil || len(found) != 1 || found[0].id != "1" || !found[0].fits("1", "RS256") {
			t.Errorf("%s: %v, %v; want the key", name, found, err)
		}
	}
}

func TestTokens_JWKSFileThatIsNone(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "x", "empty": `{"keys":[]}`, "only secrets": set(ring{}.jwk("oct", "a"))} {
		file := filetest.Files(t, "keys.json", text)
		tokens := mustTokens(t, TokenConfig{JWKS: file})
		if err := tokens.Open(t.Context(), nil, nil); err == nil || errors.Is(err, ErrNoVerificationKeys) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v; want an error that names the file", name, err)
		}
		tokens.Close()
	}
}

func TestTokens_JWKSOverHTTP(t *testing.T) {
	keys := newRing(t)
	var fail atomic.Bool
	fail.Store(true)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://issuer.example/keys", http.StatusFound)
		case r.URL.Path == "/long":
			io.WriteString(w, strings.Repeat(" ", maxJWKS)+set(keys.jwk("EC", "e1")))
		case r.URL.Path == "/empty":
			io.WriteString(w, set())
		case fail.Load(), r.URL.Path == "/none":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			io.WriteString(w, set(keys.jwk("EC", "e1")))
		}
	}))
	defer issuer.Close()
	m := bears(signed(t, signer{jwt.SigningMethodES256, keys.ec}, nil, "kid", "e1"))

	open := func(path string) (*Tokens, error) {
		tokens := mustTokens(t, TokenConfig{JWKS: issuer.URL + path, Transport: issuer.Client().Transport})
		t.Cleanup(tokens.Close)
		return tokens, tokens.Open(t.Context(), nil, nil)
	}
	tokens, err := open("/keys")
	if !errors.Is(err, ErrNoVerificationKeys) {
		t.Errorf("Open while the issuer is down = %v; want ErrNoKeys", err)
	}
	s := claimOf(tokens, "sub")
	s.OnInvalid, s.OnMissing = Skip, Skip
	if _, err := extract(s, m); !errors.Is(err, ErrNoVerificationKeys) || errors.Is(err, ErrInvalid) {
		t.Errorf("a token then = %v; want ErrNoKeys, whatever the policies", err)
	}
	fail.Store(false)
	if tokens, err = open("/keys"); err != nil {
		t.Fatal(err)
	}
	if got, err := extract(claimOf(tokens, "sub"), m); err != nil || got != "alice" {
		t.Errorf("a token = %q, %v", got, err)
	}
	tokens.Close()
	tokens.Close()
	if got, err := extract(claimOf(tokens, "sub"), m); err != nil || got != "alice" {
		t.Errorf("a token after Close = %q, %v; want the keys that were there", got, err)
	}
	issuer.URL = strings.Replace(issuer.URL, "://", "://ops:hunter2@", 1)
	for _, path := range []string{"/away", "/long", "/none", "/empty"} {
		if _, err := open(path); !errors.Is(err, ErrNoVerificationKeys) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s = %v; want ErrNoKeys, without the password", path, err)
		}
	}
}

// A transport answers from memory, so that time can be virtual.
type transport struct {
	mu     sync.Mutex
	answer string // empty for a failure
	asked  []time.Time
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = append(t.asked, time.Now())
	if t.answer == "" {
		return nil, errors.New("unreachable")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(t.answer)), Request: r}, nil
}

func (t *transport) say(answer string) {
	t.mu.Lock()
	t.answer = answer
	t.mu.Unlock()
}

func (t *transport) times() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.asked)
}

func TestTokens_KeysAreKeptFresh(t *testing.T) {
	keys, next := newRing(t), newRing(t)
	synctest.Test(t, func(t *testing.T) {
		issuer := &transport{answer: set(keys.jwk("EC", "e1"))}
		var failed atomic.Int64
		tokens := mustTokens(t, TokenConfig{
			JWKS: "https://issuer.example/keys", Transport: issuer,
		})
		if err := tokens.Open(t.Context(), nil, func(error) { failed.Add(1) }); err != nil {
			t.Fatal(err)
		}
		defer tokens.Close()
		verify := func(token string, want error) {
			t.Helper()
			if _, err := extract(claimOf(tokens, "sub"), bears(token)); !errors.Is(err, want) {
				t.Errorf("at %v: %v; want %v", time.Now(), err, want)
			}
		}
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() } // virtual
		old := signed(t, signer{jwt.SigningMethodES256, keys.ec}, jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}, "kid", "e1")
		fresh := signed(t, signer{jwt.SigningMethodES256, next.ec}, jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}, "kid", "e2")
		unknown := signed(t, signer{jwt.SigningMethodES256, next.ec}, jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}, "kid", "e3")
		verify(old, nil)

		issuer.say(set(keys.jwk("EC", "e1"), next.jwk("EC", "e2")))
		wait(time.Minute)
		for range 1000 { // a flood of unknown keys asks once, and waits for nothing
			verify(unknown, ErrInvalid)
		}
		wait(0)
		verify(fresh, nil)
		if n := issuer.times(); n != 2 {
			t.Errorf("the issuer was asked %d times; want 2", n)
		}

		for range 100 {
			verify(unknown, ErrInvalid)
			wait(time.Second)
		}
		if n := issuer.times(); n < 10 || n > 12 {
			t.Errorf("unknown keys over 100 s: the issuer was asked %d times; want once in 10 s", n-2)
		}

		issuer.say("") // down: what is known stays
		wait(11 * time.Minute)
		if failed.Load() < 2 {
			t.Errorf("%d failures were reported; want each", failed.Load())
		}
		verify(old, nil)
		issuer.say(set(next.jwk("EC", "e2"))) // a key is withdrawn
		wait(6 * time.Minute)
		verify(old, ErrInvalid)
		verify(fresh, nil)
	})
}

// An issuer that is down costs the keys that earlier ones have loaded from it nothing, and keys that nobody has not more
// than the pause after a token has come.
func TestTokens_OpenWhileTheIssuerIsDown(t *testing.T) {
	keys := newRing(t)
	synctest.Test(t, func(t *testing.T) {
		issuer, reported := &transport{}, 0
		open := func(url, secret string, earlier ...*Tokens) (*Tokens, error) {
			tokens := mustTokens(t, TokenConfig{JWKS: url, Secret: []byte(secret), Transport: issuer})
			t.Cleanup(tokens.Close)
			return tokens, tokens.Open(t.Context(), earlier, func(error) { reported++ })
		}
		text := signed(t, signer{jwt.SigningMethodES256, keys.ec}, jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}, "kid", "e1")
		verify := func(tokens *Tokens, want error) {
			t.Helper()
			if _, err := extract(claimOf(tokens, "sub"), bears(text)); !errors.Is(err, want) {
				t.Errorf("at %v: %v; want %v", time.Now(), err, want)
			}
		}
		const url = "https://issuer.example/keys"
		first, err := open(url, "")
		if !errors.Is(err, ErrNoVerificationKeys) {
			t.Fatalf("Open = %v; want ErrNoKeys", err)
		}
		issuer.say(set(keys.jwk("EC", "e1")))
		verify(first, ErrNoVerificationKeys)
		time.Sleep(refreshPause)
		synctest.Wait()
		verify(first, nil)

		issuer.say("")
		for range 2 {
			if first, err = open(url, secret, first); err != nil || len(*first.keys.Load()) != 2 {
				t.Fatalf("Open = %v with %d keys; want the secret, and the key that is known", err, len(*first.keys.Load()))
			}
			verify(first, nil)
		}
		if reported != 2 {
			t.Errorf("%d failures were reported; want both", reported)
		}
		if other, err := open(url+"/other", secret, first); !errors.Is(err, ErrNoVerificationKeys) || len(*other.keys.Load()) != 1 {
			t.Errorf("Open of another set = %v; want no key of this one", err)
		}
	})
}

func TestTokens_CloseEndsARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := mustTokens(t, TokenConfig{JWKS: "https://issuer.example/keys", Transport: hanging{}})
		began := time.Now()
		if err := tokens.Open(context.Background(), nil, nil); !errors.Is(err, ErrNoVerificationKeys) || time.Since(began) != fetchTimeout {
			t.Errorf("Open = %v after %v; want ErrNoKeys after %v", err, time.Since(began), fetchTimeout)
		}
		time.Sleep(refreshEvery) // virtual: the next one hangs by now
		synctest.Wait()
		began = time.Now()
		tokens.Close()
		if d := time.Since(began); d != 0 {
			t.Errorf("Close took %v; want it at once", d)
		}
	})
}

// hanging never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// An issuer that goes silent costs one request: no other goes over the same connection.
func TestTokens_EachRequestHasItsOwnConnection(t *testing.T) {
	var connections atomic.Int32
	text := set(newRing(t).jwk("OKP", "o1"))
	issuer := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("asked over %s", r.Proto)
		}
		io.WriteString(w, text)
	}))
	issuer.EnableHTTP2 = true
	issuer.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	issuer.StartTLS()
	defer issuer.Close()
	tokens := mustTokens(t, TokenConfig{JWKS: issuer.URL, Transport: issuer.Client().Transport})
	for n := int32(1); n <= 3; n++ {
		if err := tokens.refresh(t.Context()); err != nil || connections.Load() != n {
			t.Fatalf("request %d: %v, over %d connections", n, err, connections.Load())
		}
	}
}

// A token whose key may be in a set that was not loaded yet is not one that is signed with an unknown key, also where
// there is a secret besides.
func TestTokens_SecretWhileTheIssuerIsDown(t *testing.T) {
	keys := newRing(t)
	tokens := mustTokens(t, TokenConfig{Secret: []byte(secret), JWKS: "https://issuer.example/keys", Transport: &transport{}})
	defer tokens.Close()
	if err := tokens.Open(t.Context(), nil, nil); !errors.Is(err, ErrNoVerificationKeys) {
		t.Errorf("Open = %v; want ErrNoVerificationKeys", err)
	}
	s := claimOf(tokens, "sub")
	s.OnInvalid = Skip
	if _, err := extract(s, bears(signed(t, signer{jwt.SigningMethodES256, keys.ec}, nil))); !errors.Is(err, ErrNoVerificationKeys) {
		t.Errorf("a token of the issuer: %v; want ErrNoVerificationKeys, whatever the policy", err)
	}
	if got, err := extract(s, bears(signed(t, signer{jwt.SigningMethodHS256, []byte(secret)}, nil))); err != nil || got != "alice" {
		t.Errorf("a token of the secret: %q, %v", got, err)
	}
}
