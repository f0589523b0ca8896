package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
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
	replaceFile(t, path, "listen: {"+listen+"}\n"+rest)
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
		rewrite(t, filepath.Join(dir, name), string(pem.EncodeToMemory(block)))
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
	replaceFile(t, path, strings.Replace(string(text), "admin: {", "admin: {https: '127.0.0.1:0', token: secret, ", 1))
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

// listenOn opens a socket, as systemd does before it starts a node.
func listenOn(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A socket that was passed is used under its name, and the address of the
// configuration for the others.
func TestSockets_PassedBeforeConfigured(t *testing.T) {
	passed := listenOn(t, "tcp", "127.0.0.1:0")
	s := sockets{inherited: map[string][]net.Listener{"http": {passed}}}
	l, err := s.open(place{"http", "listen.http", "127.0.0.1:1"})
	if err != nil || l.Addr().String() != passed.Addr().String() {
		t.Fatalf("http: %v, %v; want the socket that was passed", l, err)
	}
	other, err := s.open(place{"admin", "admin.http", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	if err := s.closeUnused(); err != nil {
		t.Errorf("all are used: %v", err)
	}
}

func TestSockets_WhatIsWrongIsSaid(t *testing.T) {
	tcp := func() net.Listener { return listenOn(t, "tcp", "127.0.0.1:0") }
	for _, row := range []struct {
		passed map[string][]net.Listener
		want   string
	}{
		{map[string][]net.Listener{"https": {tcp()}}, "a socket named https, but nothing is served there; write FileDescriptorName=http, https or admin"},
		{map[string][]net.Listener{"http": {tcp(), tcp()}}, "passed 2 sockets named http"},
		{map[string][]net.Listener{"unknown": {nil}}, "named unknown"},
	} {
		s := sockets{inherited: row.passed}
		if len(row.passed["http"]) == 2 { // none of several is taken
			l, err := s.open(place{"http", "listen.http", "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
		if err := s.closeUnused(); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v: %v; want %q", row.passed, err, row.want)
		}
		for _, all := range row.passed {
			for _, l := range all {
				if l == nil {
					continue
				}
				if _, err := l.Accept(); err == nil {
					t.Errorf("%s is still open", l.Addr())
				}
			}
		}
	}
}

func TestSockets_OnlyTCP(t *testing.T) {
	s := sockets{inherited: map[string][]net.Listener{"http": {listenOn(t, "unix", filepath.Join(t.TempDir(), "s"))}}}
	if _, err := s.open(place{"http", "listen.http", ""}); err == nil || !strings.Contains(err.Error(), "write host:port into ListenStream=") {
		t.Errorf("a unix socket: %v; want what to write", err)
	}
}

func TestSockets_TwoOnOneAddress(t *testing.T) {
	one, err := sockets{reusePort: true}.open(place{"http", "listen.http", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := sockets{reusePort: true}.open(place{"http", "listen.http", one.Addr().String()})
	if err != nil {
		t.Fatalf("with listen.reuse_port: %v", err)
	}
	two.Close()
	if _, err := (sockets{}).open(place{"http", "listen.http", one.Addr().String()}); err == nil || !strings.Contains(err.Error(), ": address already in use; end the program that listens there, such as another weir, ") {
		t.Errorf("without listen.reuse_port: %v", err)
	}
}

// An address that cannot be listened on is an error that names its field and what to do.
func TestSockets_ErrorNamesTheFieldAndTheCure(t *testing.T) {
	taken, err := sockets{}.open(place{"http", "listen.http", "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := taken.Addr().String()
	c := &config.Config{Admin: config.Admin{HTTP: at, HTTPS: at}, Listen: config.Listen{HTTP: at, HTTPS: at, Decide: &config.Decide{HTTP: at, GRPC: at}}}
	fields := map[string]string{
		"http": "listen.http: ", "https": "listen.https: ", "admin": "admin.http: ", "admin_https": "admin.https: ",
		"decide": "listen.decide.http: ", "decide_grpc": "listen.decide.grpc: ",
	}
	for _, p := range placesOf(c) {
		if _, err := (sockets{}).open(p); err == nil || fields[p.name] == "" || !strings.HasPrefix(err.Error(), fields[p.name]) {
			t.Errorf("%s: %v; want it to begin with %q", p.name, err, fields[p.name])
		}
		delete(fields, p.name)
	}
	if len(fields) > 0 {
		t.Errorf("nothing is opened for %v", fields)
	}
	if _, err := (sockets{}).open(place{"http", "listen.http", "192.0.2.1:0"}); err == nil || !strings.HasSuffix(err.Error(), "no such address") {
		t.Errorf("an address of nobody: %v", err)
	}
	if _, err := (sockets{}).open(place{"http", "listen.http", "127.0.0.1:99999"}); err == nil || !strings.HasPrefix(err.Error(), "listen.http: 127.0.0.1:99999: ") {
		t.Errorf("a port that there is not: %v", err)
	}
	if hint := listenHint(syscall.EACCES); !strings.Contains(hint, "CAP_NET_BIND_SERVICE") || strings.Contains(hint, "another weir") { // root may listen on port 80
		t.Errorf("port 80: %q", hint)
	}
}

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
	rewrite(t, filepath.Join(dir, "cert.pem"), "nonsense")
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
	answer := get(t, "http://"+n.Address("http")+"/.well-known/acme-challenge/token")
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

// Only HTTPS uses certificates: without it, as in the example file, no directory for them
// is created.
func TestWritable_StorageIsCreatedForHTTPSOnly(t *testing.T) {
	storage := filepath.Join(t.TempDir(), "acme")
	c := &config.Config{Listen: config.Listen{HTTP: "127.0.0.1:0", ACME: &config.ACME{Storage: storage}}}
	if err := checkWritable(c); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(storage); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without HTTPS: %v, want no directory", err)
	}
	c.Listen.HTTPS = "127.0.0.1:0"
	if err := checkWritable(c); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(storage); err != nil || !info.IsDir() {
		t.Errorf("with HTTPS: %v, want a directory", err)
	}
}
