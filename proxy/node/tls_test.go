package node

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// certificateName is the name in the certificate that is shown at addr.
func certificateName(t *testing.T, addr string) []byte {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Raw
}

// A certificate that is renewed on disk is shown without a restart; one that is
// nonsense is not.
func TestTLS_CertificatesAreRenewed(t *testing.T) {
	path := listened(t, "http: none, https: '127.0.0.1:0', tls: {cert: cert.pem, key: key.pem}")
	certified(t, path)
	n := mustStart(t, path)
	first := certificateName(t, n.Address("https"))
	dir := filepath.Dir(path)
	if err := rewrite(filepath.Join(dir, "cert.pem"), "nonsense"); err != nil {
		t.Fatal(err)
	}
	n.waitForLog("certificate not loaded; keeping the previous one")
	if string(certificateName(t, n.Address("https"))) != string(first) {
		t.Error("nonsense has changed what clients are shown")
	}
	issue(t, dir)
	n.waitForLog("certificate loaded")
	if string(certificateName(t, n.Address("https"))) == string(first) {
		t.Error("clients are shown the old certificate")
	}
}

// A node whose authority cannot be reached starts, serves plain HTTP, and ends in time.
func TestTLS_AnAuthorityThatIsAway(t *testing.T) {
	storage := filepath.Join(t.TempDir(), "acme")
	path := listened(t, "http: '127.0.0.1:0', https: '127.0.0.1:0', tls: {acme: {domains: [a.example], email: a@a.example, directory: 'https://127.0.0.1:1/dir', storage: "+storage+"}}")
	n := mustStart(t, path)
	answer, err := http.Get("http://" + n.Address("http") + "/.well-known/acme-challenge/token")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound { // no route has it, and no authority asked
		t.Errorf("a challenge that nobody set: %d; want 404", answer.StatusCode)
	}
	n.waitForLog("certificate requested")
	if err := n.end(); err != nil {
		t.Errorf("close: %v", err)
	}
	if info, err := os.Stat(storage); err != nil || !info.IsDir() {
		t.Errorf("storage: %v", err)
	}
}
