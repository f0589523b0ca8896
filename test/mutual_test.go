package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/logtest"
)

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

// newAuthority makes one that nobody else believes.
func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "operators"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	return a
}

// issues writes a certificate for operators and its key into one file.
func (a *authority) issues(t *testing.T, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "ann"}, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	raw, err := x509.CreateCertificate(rand.Reader, of, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// Where client_ca is set, who has no certificate of it does not even get to say a token;
// who has one needs a token besides, and clients of the proxy need neither.
func TestAdmin_AsksForCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	operators, strangers := newAuthority(t), newAuthority(t)
	write(t, filepath.Join(dir, "operators.pem"), operators.pem)
	operators.issues(t, filepath.Join(dir, "ann.pem"))
	strangers.issues(t, filepath.Join(dir, "eve.pem"))
	write(t, filepath.Join(dir, "weir.yaml"), `listen: {http: "127.0.0.1:0", https: "127.0.0.1:0", tls: {cert: cert.pem, key: key.pem}}
admin: {http: "127.0.0.1:0", https: "127.0.0.1:0", client_ca: operators.pem, token: 0123456789abcdef}
`+smsYAML("1/1h", ""))
	w := startWith(t, dir)
	secure := "https://" + w.WaitForLog("serving", func(logtest.Line) bool { return true }).Text("admin_https")
	ask := func(more ...string) (code int, said string) {
		code, stdout, stderr := command(t, dir, append([]string{"top", "--once", "--admin", secure, "--cacert", "cert.pem"}, more...)...)
		return code, stdout + stderr
	}
	if code, said := ask("--cert", "ann.pem", "--token", "0123456789abcdef"); code != 0 || !strings.Contains(said, "LIMITS") {
		t.Errorf("with a certificate and a token: %d %s", code, said)
	}
	for _, c := range []struct{ args, want string }{
		{"--cert ann.pem", "no admin token"},
		{"--token 0123456789abcdef", "certificate required"},
		{"--token 0123456789abcdef --cert eve.pem", "certificate"},
		{"--key ann.pem", "--key without --cert"},
		{"--cert nobody.pem", "nobody.pem"},
		{"--cacert weir.yaml", "there is no certificate in this file"},
	} {
		if code, said := ask(strings.Fields(c.args)...); code == 0 || !strings.Contains(said, c.want) {
			t.Errorf("with %s: %d %s; want %q", c.args, code, said, c.want)
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get("https://" + w.WaitForLog("serving", func(logtest.Line) bool { return true }).Text("https") + "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("a client of the proxy is answered %d", answer.StatusCode)
	}
}
