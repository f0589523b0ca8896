package test

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// writeCertificate writes a certificate and its key into dir, as cert.pem and key.pem.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	s := httptest.NewTLSServer(nil) // it has one
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}
