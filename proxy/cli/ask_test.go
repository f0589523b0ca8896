package cli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeFile writes a file to a folder of its own.
func writeFile(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificateOf writes the certificate of a server and its key as PEM, into one file.
func certificateOf(t *testing.T, s *httptest.Server) (certificate, both string) {
	t.Helper()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	return writeFile(t, "ca.pem", cert), writeFile(t, "both.pem", append(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...))
}

func TestTLSFlags_WhatIsWrongWithTheFiles(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	ca, both := certificateOf(t, s)
	none := writeFile(t, "none.pem", []byte("nothing"))
	for _, row := range []struct {
		flags tlsFlags
		want  string // "" for none
	}{
		{tlsFlags{}, ""},
		{tlsFlags{CACert: ca}, ""},
		{tlsFlags{Cert: both}, ""}, // one file has both
		{tlsFlags{Cert: ca, Key: both}, ""},
		{tlsFlags{CACert: "/nowhere"}, "--cacert: open /nowhere: no such file or directory"},
		{tlsFlags{CACert: none}, "--cacert " + none + ": there is no certificate in this file; name one with -----BEGIN CERTIFICATE-----"},
		{tlsFlags{Key: both}, "--key without --cert: write both, they belong together"},
		{tlsFlags{Cert: ca}, "--cert: tls: found a certificate rather than a key"},
		{tlsFlags{Cert: "/nowhere"}, "--cert: open /nowhere: no such file or directory"},
	} {
		got := ""
		if err := row.flags.Validate(); err != nil {
			got = err.Error()
		}
		if row.want == "" && got != "" || !strings.HasPrefix(got, row.want) {
			t.Errorf("%+v: %q; want %q", row.flags, got, row.want)
		}
	}
}

// An admin listener in TLS is asked with the authority and the certificate of the flags,
// over HTTP/1.1.
func TestTLSFlags_ReachAnAdminListener(t *testing.T) {
	var proto string
	var presented int
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proto, presented = r.Proto, len(r.TLS.PeerCertificates)
		w.Write([]byte(`{"history":[]}`))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail on purpose
	s.StartTLS()
	defer s.Close()
	ca, both := certificateOf(t, s)
	if code, _, stderr := runWeir("history", "--admin", s.URL); code != exitFailure || !strings.Contains(stderr, "certificate") {
		t.Errorf("without --cacert: %d, %q; want that the certificate is refused", code, stderr)
	}
	for _, row := range []struct {
		args []string
		want int
	}{{nil, 0}, {[]string{"--cert", both}, 1}} {
		code, out, stderr := runWeir(append([]string{"history", "--admin", s.URL, "--cacert", ca}, row.args...)...)
		if code != exitOK || out != "nothing was pushed yet\n" || proto != "HTTP/1.1" || presented != row.want {
			t.Errorf("history %q = %d, %q, %q, over %s with %d certificates; want HTTP/1.1 with %d", row.args, code, out, stderr, proto, presented, row.want)
		}
	}
	code, _, stderr := runWeir("history", "--admin", s.URL, "--key", both)
	if code != exitUsage || !strings.Contains(stderr, "--key without --cert") {
		t.Errorf("--key alone: %d, %q; want %d and what is missing", code, stderr, exitUsage)
	}
}
