package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newCertificate is a certificate that vouches for itself, and its key, as PEM.
func newCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

const secured = "upstreams:\n  s: {targets: [\"https://a\"], tls: {ca: certs/ca.pem, cert: certs/cert.pem, key: certs/key.pem, server_name: b}}\n" + small

func TestLoad_CertificatesOfUpstreams(t *testing.T) {
	cert, key := newCertificate(t)
	other, _ := newCertificate(t)
	path := write(t, "weir.yaml", secured, "certs/ca.pem", cert, "certs/cert.pem", cert, "certs/key.pem", key)
	c := mustLoad(t, path)
	got := c.Upstreams["s"].TLS
	if got.Roots == nil || got.Roots.Equal(x509.NewCertPool()) || got.Certificate == nil || got.ServerName != "b" {
		t.Errorf("got %+v", got)
	}
	certs := filepath.Join(filepath.Dir(path), "certs")
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem"} {
		if !slices.Contains(c.Files, filepath.Join(certs, name)) {
			t.Errorf("%s is none of the files %v: a change of it would not be noticed", name, c.Files)
		}
	}
	if err := os.WriteFile(filepath.Join(certs, "ca.pem"), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	if mustLoad(t, path).Hash == c.Hash {
		t.Error("another certificate is no change")
	}
	if err := os.WriteFile(filepath.Join(certs, "cert.pem"), []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if got := wantProblems(t, c, err).Error(); !strings.Contains(got, "upstreams.s.tls.cert: certificate and key do not match") || strings.Contains(got, "PRIVATE") {
		t.Errorf("got %s", got)
	}
}
