package key

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, file := range map[string]string{
		"no such file":   filepath.Join(t.TempDir(), "none.pem"),
		"no PEM":         write("hello"),
		"empty":          write(""),
		"a private key":  write(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))),
		"broken":         write(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}))),
		"a weak RSA key": pemFile(t, small.Public()),
	} {
		tokens, err := NewTokens(TokenConfig{Files: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		if err := tokens.Open(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
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
