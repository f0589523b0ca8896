package frontend

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/sockettest"
)

// A fixedIssuer has one certificate, or none yet.
type fixedIssuer struct {
	name string
	cert *tls.Certificate
}

func (f *fixedIssuer) Names() []string { return []string{f.name} }

func (f *fixedIssuer) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if f.cert == nil {
		return nil, errors.New("none yet")
	}
	return f.cert, nil
}

func (f *fixedIssuer) Certificates() []*x509.Certificate {
	if f.cert == nil {
		return nil
	}
	return []*x509.Certificate{f.cert.Leaf}
}

// certificateFor is one in memory.
func certificateFor(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	pair := pairIn(t.TempDir(), "x")
	issue(t, pair, name)
	cert, err := load(pair)
	if err != nil {
		t.Fatal(err)
	}
	return &cert
}

func TestCertificates_OfAnIssuer(t *testing.T) {
	pair := pairIn(t.TempDir(), "a")
	issue(t, pair, "a.example", "b.example")
	issuer := &fixedIssuer{name: "b.example"}
	f := startServer(t, "", echo())
	serve := func(files ...config.Pair) string {
		certs, err := LoadCertificates(files, issuer, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		return sockettest.Serve(f, &f.served, func(l net.Listener) error { return f.server.ServeTLS(l, certs, nil) })
	}
	both, alone := serve(pair), serve()
	if got := certificateAt(t, both, "b.example").DNSNames[0]; got != "a.example" {
		t.Errorf("until there is one, %s is shown; want the file's", got)
	}
	if c, err := tls.Dial("tcp", alone, &tls.Config{InsecureSkipVerify: true, ServerName: "b.example"}); err == nil {
		c.Close()
		t.Error("a handshake without any certificate")
	}
	issuer.cert = certificateFor(t, "issued.example")
	for asked, want := range map[string]string{"a.example": "a.example", "b.example": "issued.example", "B.example": "issued.example", "c.example": "a.example", "": "a.example"} {
		if got := certificateAt(t, both, asked).DNSNames[0]; got != want {
			t.Errorf("%q is shown %s; want %s", asked, got, want)
		}
		if got := certificateAt(t, alone, asked).DNSNames[0]; got != "issued.example" {
			t.Errorf("%q is shown %s; want the only one", asked, got)
		}
	}
}

// An authority that asks for proof is shown it, and its connection carries no
// request.
func TestCertificates_Proof(t *testing.T) {
	issuer := &fixedIssuer{name: "b.example", cert: certificateFor(t, "proof.example")}
	pair := pairIn(t.TempDir(), "a")
	issue(t, pair, "b.example")
	certs, err := LoadCertificates([]config.Pair{pair}, issuer, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	f := startServer(t, "", echo())
	addr := sockettest.Serve(f, &f.served, func(l net.Listener) error { return f.server.ServeTLS(l, certs, nil) })
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: "b.example", NextProtos: []string{"acme-tls/1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState(); got.NegotiatedProtocol != "acme-tls/1" || got.PeerCertificates[0].DNSNames[0] != "proof.example" {
		t.Errorf("shown %v over %q", got.PeerCertificates[0].DNSNames, got.NegotiatedProtocol)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes; want the end", n)
	}
}

func TestCertificates_Expiry(t *testing.T) {
	pair, again := pairIn(t.TempDir(), "a"), pairIn(t.TempDir(), "a")
	first := issue(t, pair, "a.example", "other.example")
	issue(t, again, "a.example")
	issuer := &fixedIssuer{name: "b.example"}
	certs, err := LoadCertificates([]config.Pair{pair, again}, issuer, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(certs.Expiry()); n != 1 {
		t.Errorf("%d figures; want one for each name", n)
	}
	if got := testutil.ToFloat64(certs.Expiry()); got != float64(first.NotAfter.Unix()) {
		t.Errorf("ends at %v; want %v", got, first.NotAfter.Unix())
	}
	issuer.cert = certificateFor(t, "issued.example")
	if n := testutil.CollectAndCount(certs.Expiry()); n != 2 {
		t.Errorf("%d figures; want 2", n)
	}
	if problems, err := testutil.CollectAndLint(certs.Expiry()); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if !strings.Contains(certs.all()[2].DNSNames[0], "issued") {
		t.Errorf("held %v", certs.all())
	}
}
