package frontend

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// issue writes a certificate for names, signed by itself, and its key.
func issue(t *testing.T, to config.Pair, names ...string) *x509.Certificate {
	t.Helper()
	cert, key := certtest.New(t, names...)
	replaceFile(t, to.Key, []byte(key))
	replaceFile(t, to.Cert, []byte(cert))
	made, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return made.Leaf
}

// replaceFile puts a new file in the place of an old one, as programs that renew
// certificates do.
func replaceFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// loaded are the certificates of files, and of an issuer if there is one.
func loaded(t testing.TB, files []config.Pair, issuer Issuer) *Certificates {
	t.Helper()
	certs, err := LoadCertificates(files, issuer, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func pairIn(dir, name string) config.Pair {
	return config.Pair{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
}

// certificates are one for a.example, and the configuration of a client that trusts it.
func (t *testServer) certificates() (*Certificates, *tls.Config) {
	t.Helper()
	pair := pairIn(t.TempDir(), "a")
	roots := x509.NewCertPool()
	roots.AddCert(issue(t.T, pair, "a.example"))
	certs := loaded(t, []config.Pair{pair}, nil)
	return certs, &tls.Config{RootCAs: roots, ServerName: "a.example"}
}

// listenTLS lets t listen in TLS too, with a certificate for a.example, and returns
// where, and a client that trusts it.
func (t *testServer) listenTLS() (addr string, client *http.Client) {
	t.Helper()
	certs, trusting := t.certificates()
	addr = sockettest.Serve(t, &t.served, func(l net.Listener) error { return t.server.ServeTLS(l, certs, nil) })
	return addr, sockettest.HTTPClient(t, addr, trusting)
}

// certificateAt is the certificate that a client which asks for name is shown.
func certificateAt(t *testing.T, addr, name string) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

func TestTLS_BothProtocols(t *testing.T) {
	_, two := startServer(t, "", echo()).listenTLS()
	_, one := startServer(t, "", echo()).listenTLS()
	one.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	one.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	for proto, client := range map[string]*http.Client{"HTTP/1.1": one, "HTTP/2.0": two} {
		answer, err := client.Post("https://a.example/x", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		var got receivedRequest
		err = json.NewDecoder(answer.Body).Decode(&got)
		answer.Body.Close()
		if err != nil || got != (receivedRequest{proto, "127.0.0.1", "hello", true}) {
			t.Errorf("%s: echoed %+v, %v", proto, got, err)
		}
	}
}

// A client that offers nothing but HTTP/1.0 is served (RFC 7301 registers http/1.0).
func TestTLS_HTTP10Alone(t *testing.T) {
	addr, _ := startServer(t, "", echo()).listenTLS()
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example", NextProtos: []string{"http/1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != 200 {
		t.Errorf("got %v, %v", answer, err)
	}
}

// A handshake has a timeout of its own, and the first head has all of its time after it:
// each of them takes longer than the timeout of the other.
func TestTLS_HandshakeHasItsOwnTimeout(t *testing.T) {
	for timeouts, fine := range map[string]bool{
		"timeouts: {handshake: 1m, header: 100ms}": true,
		"timeouts: {handshake: 100ms, header: 1m}": false,
	} {
		addr, _ := startServer(t, timeouts, echo()).listenTLS()
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		// The client sends nothing for longer than 100 ms: a server that ends it then is seen.
		wait := enough
		if fine {
			wait = 500 * time.Millisecond
		}
		if err := raw.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		_, err = raw.Read(make([]byte, 1))
		if open := errors.Is(err, os.ErrDeadlineExceeded); open != fine {
			t.Errorf("%s: open after %v: %t, %v; want %t", timeouts, wait, open, err, fine)
		}
	}
}

func TestTLS_NothingOlderThan12(t *testing.T) {
	addr, _ := startServer(t, "", echo()).listenTLS()
	for version, fine := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != fine {
			t.Errorf("%s: %v; want it to be fine: %v", tls.VersionName(version), err, fine)
		}
		if err == nil {
			c.Close()
		}
	}
}

func TestTLS_ConnectionsWithoutIt(t *testing.T) {
	f, hasty := startServer(t, "", echo()), startServer(t, "timeouts: {handshake: 300ms}", echo())
	addr, _ := f.listenTLS()
	f.addr = addr
	hasty.addr, _ = hasty.listenTLS()
	if _, body := f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n").WantStatus(400); !strings.Contains(body, "HTTPS") {
		t.Errorf("plain HTTP is answered with %q; want what is wrong", body)
	}
	hasty.dial("").WantClosed()         // says nothing
	hasty.dial("\x16\x03").WantClosed() // stops in the middle
	io.ReadAll(f.dial("nonsense").Reader)
	certificateAt(t, addr, "a.example") // all that disturbs nobody
}

func TestCertificates_ByName(t *testing.T) {
	dir := t.TempDir()
	var files []config.Pair
	for _, name := range []string{"first.example", "*.b.example"} {
		pair := pairIn(dir, strings.TrimPrefix(name, "*."))
		issue(t, pair, name)
		files = append(files, pair)
	}
	certs := loaded(t, files, nil)
	f := startServer(t, "", echo())
	addr := sockettest.Serve(f, &f.served, func(l net.Listener) error { return f.server.ServeTLS(l, certs, nil) })
	for asked, want := range map[string]string{"first.example": "first.example", "x.b.example": "*.b.example", "other.example": "first.example", "": "first.example"} {
		if got := certificateAt(t, addr, asked).DNSNames[0]; got != want {
			t.Errorf("%q is shown %s; want %s", asked, got, want)
		}
	}
}

func TestCertificates_Refused(t *testing.T) {
	dir := t.TempDir()
	a, b := pairIn(dir, "a"), pairIn(dir, "b")
	issue(t, a, "a.example")
	issue(t, b, "b.example")
	for _, files := range []config.Pair{{Cert: a.Cert, Key: b.Key}, {Cert: filepath.Join(dir, "none"), Key: a.Key}, {Cert: a.Key, Key: a.Cert}} {
		if _, err := LoadCertificates([]config.Pair{a, files}, nil, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), files.Cert) {
			t.Errorf("%v: %v; want an error that names the file", files, err)
		}
	}
}

// What whoever watches these files has read anew is shown from then on.
func TestCertificates_AreReloaded(t *testing.T) {
	f := startServer(t, "", echo())
	log := zerolog.New(&f.log)
	pair, other := pairIn(t.TempDir(), "a"), pairIn(t.TempDir(), "b")
	first := issue(t, pair, "a.example")
	issue(t, other, "b.example")
	certs, err := LoadCertificates([]config.Pair{pair, other}, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	addr := sockettest.Serve(f, &f.served, func(l net.Listener) error { return f.server.ServeTLS(l, certs, nil) })
	replaceFile(t, pair.Key, []byte("nonsense"))
	certs.Reload()
	f.waitForLog("certificate not loaded; keeping the previous one")
	if !certificateAt(t, addr, "a.example").Equal(first) {
		t.Error("a key that is none has changed what clients are shown")
	}
	second := issue(t, pair, "a.example")
	certs.Reload()
	f.waitForLog("certificate loaded")
	if files := certs.Files(); !slices.Equal(files, []string{pair.Cert, pair.Key, other.Cert, other.Key}) {
		t.Errorf("files %q; want certificates and keys", files)
	}
	if !certificateAt(t, addr, "a.example").Equal(second) || certificateAt(t, addr, "b.example").DNSNames[0] != "b.example" {
		t.Error("clients are not shown the new certificate")
	}
}

// A file to which only the certificate of its authority is added, which it lacked, is loaded.
func TestCertificates_AChainIsReloaded(t *testing.T) {
	pair, authority := pairIn(t.TempDir(), "a"), pairIn(t.TempDir(), "b")
	issue(t, pair, "a.example")
	above := issue(t, authority, "authority.example")
	certs := loaded(t, []config.Pair{pair}, nil)
	leaf := filetest.Read(t, pair.Cert)
	replaceFile(t, pair.Cert, append(leaf, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: above.Raw})...))
	certs.Reload()
	if shown := certs.current.Load().Certificates[0].Certificate; len(shown) != 2 || !bytes.Equal(shown[1], above.Raw) {
		t.Errorf("clients are shown %d certificates; want the one of the authority too", len(shown))
	}
}

// namedHandler are what else is served: both protocols' handler, which says its name.
type namedHandler struct{}

func (namedHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "routes") }

func (n namedHandler) ServeHTTP1(x *http1.Exchange) { serveNetHTTP1(x, n) }

func (namedHandler) BodyBudget() http2.Budget { return nil }

func (namedHandler) Tunnels() *http1.Tunnels { return new(http1.Tunnels) }

func (namedHandler) BeginHTTP2(*http2.Stream) bool { return true }

func (namedHandler) ServeHTTP2(s *http2.Stream) {
	s.Start(http.StatusOK)
	_ = s.Send([]byte("routes"))
}

func (namedHandler) RefuseHTTP1(x *http1.Exchange, _ error) {
	x.Begin(http.StatusTeapot)
	_ = x.Send(nil)
}

// fixedChallenge answers for one token, as an authority asks for it.
type fixedChallenge string

func (f fixedChallenge) AnswerChallenge(r *http.Request) ([]byte, bool) {
	return []byte("proof"), r.URL.Path == challengePrefix+string(f)
}

// An alsoOfNetHTTP can be started like a handler of net/http, but serves by its own.
type alsoOfNetHTTP struct{ Handler }

func (alsoOfNetHTTP) ServeHTTP(http.ResponseWriter, *http.Request) { panic("not its own") }

func TestChallenges_AreAnsweredBeforeRoutes(t *testing.T) {
	f := startServer(t, "h2c: true", alsoOfNetHTTP{WithChallenges(namedHandler{}, fixedChallenge("token"))})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	two := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer two.CloseIdleConnections()
	for path, want := range map[string]string{challengePrefix + "token": "proof", challengePrefix + "other": "routes", "/": "routes"} {
		for proto, client := range map[string]*http.Client{"HTTP/1.1": http.DefaultClient, "HTTP/2.0": two} {
			answer, err := client.Get("http://" + f.addr + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if string(body) != want || answer.Proto != proto {
				t.Errorf("%s over %s: %q over %s; want %q", path, proto, body, answer.Proto, want)
			}
		}
	}
	f.dial(strings.Replace(plainly, "Host: a", "Host: a\r\nHost: b", 1)).WantStatus(http.StatusTeapot)
}

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
		certs := loaded(t, files, issuer)
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
	certs := loaded(t, []config.Pair{pair}, issuer)
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
	certs := loaded(t, []config.Pair{pair, again}, issuer)
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
