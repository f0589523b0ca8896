package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certified writes a certificate that client trusts, and its key, beside path.
func certified(t *testing.T, path string) (client *http.Client) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: s.Certificate().Raw}, "key.pem": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s.Client()
}

// listened is a configuration that listens as listen says.
func listened(t *testing.T, listen string) string {
	t.Helper()
	path := writeConfig(t, "")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	if err := os.WriteFile(path, []byte("listen: {"+listen+"}\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue puts a new certificate and its key into dir, as programs that renew them do.
func issue(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"a.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"key.pem": {Type: "PRIVATE KEY", Bytes: secret}, "cert.pem": {Type: "CERTIFICATE", Bytes: der}} {
		if err := rewrite(filepath.Join(dir, name), string(pem.EncodeToMemory(block))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListen_HTTPSAlone(t *testing.T) {
	path := listened(t, "http: none, https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	client := certified(t, path)
	n := mustStart(t, path)
	if got := n.Address("http"); got != "" {
		t.Errorf("serving plain HTTP at %s; want none", got)
	}
	answer, err := client.Get("https://" + n.Address("https") + "/a")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("status %d", answer.StatusCode)
	}
	client.CloseIdleConnections()
	if err := n.end(); err != nil {
		t.Error(err)
	}
}

func TestListen_AdminInTLS(t *testing.T) {
	path := listened(t, "http: none, https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "admin: {", "admin: {https: '127.0.0.1:0', token: secret, ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	client := certified(t, path)
	n := mustStart(t, path)
	addr := n.Address("admin_https")
	if addr == "" {
		t.Fatal("serving without an admin listener in TLS")
	}
	for token, want := range map[string]int{"secret": 200, "guess": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+addr+"/reload", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("with %s: status %d; want %d", token, answer.StatusCode, want)
		}
	}
	client.CloseIdleConnections()
	if err := n.end(); err != nil {
		t.Error(err)
	}
}

func TestListen_CertificateThatIsNone(t *testing.T) {
	path := listened(t, "http: '127.0.0.1:0', https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	if _, err := startNode(t, path, nil); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Errorf("start: %v; want the name of the file", err)
	}
}
