package cli

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	path := file(t, "")
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

func TestServe_HTTPSAlone(t *testing.T) {
	path := listened(t, "http: none, https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	client := certified(t, path)
	stop, says := serving(t, path, nil)
	started := says("serving")
	if started["http"] != nil {
		t.Errorf("serving %v; want no plain HTTP", started)
	}
	answer, err := client.Get("https://" + started["https"].(string) + "/a")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != 200 {
		t.Errorf("status %d", answer.StatusCode)
	}
	client.CloseIdleConnections()
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestServe_AdminInTLS(t *testing.T) {
	path := listened(t, "http: none, https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "admin: {", "admin: {https: '127.0.0.1:0', token: secret, ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	client := certified(t, path)
	stop, says := serving(t, path, nil)
	addr := says("serving")["admin_https"]
	if addr == nil {
		t.Fatal("serving without an admin listener in TLS")
	}
	for token, want := range map[string]int{"secret": 200, "guess": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+addr.(string)+"/reload", nil)
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
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestServe_CertificateThatIsNone(t *testing.T) {
	path := listened(t, "http: '127.0.0.1:0', https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	if code, _, stderr := weir("run", "-c", path); code != exitFault || !strings.Contains(stderr, "cert.pem") {
		t.Errorf("exit code %d, %q; want the name of the file", code, stderr)
	}
}
