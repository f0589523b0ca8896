package acme

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An authority is the part of RFC 8555 that a client needs to get a certificate by
// http-01. It asks the questions where it is told to, whatever the name is.
type authority struct {
	*httptest.Server
	t     *testing.T
	ca    string // file
	key   *ecdsa.PrivateKey
	plain string        // host:port that is asked
	check time.Duration // how often certificates are checked for renewal

	mu      sync.Mutex // guards what follows
	orders  []*order
	nonces  int
	refuses string        // the type of the problem that orders are refused with
	age     time.Duration // how old certificates are when they are given

	status  string        // URL where the revocation of certificates is asked for (OCSP); none if it is empty
	hangs   atomic.Bool   // questions about renewals are not answered
	renewal chan struct{} // each question about a renewal
}

// An order is for one name.
type order struct {
	name   string
	proved bool
	chain  []byte
}

const lifetime = 24 * time.Hour

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, renewal: make(chan struct{}, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /dir", a.directory)
	mux.HandleFunc("HEAD /nonce", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /account", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", a.URL+"/account/1")
		say(w, http.StatusCreated, map[string]any{"status": "valid"})
	})
	mux.HandleFunc("POST /order", a.newOrder)
	mux.HandleFunc("POST /order/{n}", func(w http.ResponseWriter, r *http.Request) { a.tell(w, r, http.StatusOK) })
	mux.HandleFunc("POST /authz/{n}", a.authorization)
	mux.HandleFunc("POST /challenge/{n}", a.challenge)
	mux.HandleFunc("POST /finalize/{n}", a.finalize)
	mux.HandleFunc("POST /cert/{n}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		w.Write(a.order(r).chain)
	})
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/renewal/") {
			a.whenToRenew(w, r)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.nonces++
		w.Header().Set("Replay-Nonce", strconv.Itoa(a.nonces))
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	a.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	return a
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// read is the payload of a signed request; who signed it is not looked at.
func (a *authority) read(r *http.Request, v any) {
	var signed struct{ Payload string }
	if err := json.NewDecoder(r.Body).Decode(&signed); err != nil {
		a.t.Errorf("%s: %v", r.URL, err)
	}
	text, err := base64.RawURLEncoding.DecodeString(signed.Payload)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		a.t.Errorf("%s: %v", r.URL, err)
	}
}

func (a *authority) directory(w http.ResponseWriter, _ *http.Request) {
	say(w, http.StatusOK, map[string]string{
		"newNonce": a.URL + "/nonce", "newAccount": a.URL + "/account", "newOrder": a.URL + "/order",
		"renewalInfo": a.URL + "/renewal", "revokeCert": a.URL + "/revoke", "keyChange": a.URL + "/rollover",
	})
}

// whenToRenew says when a certificate is to be renewed (RFC 9773), which is to be asked again at once.
func (a *authority) whenToRenew(w http.ResponseWriter, r *http.Request) {
	a.renewal <- struct{}{}
	if a.hangs.Load() {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Retry-After", "0")
	later := time.Now().Add(lifetime)
	say(w, http.StatusOK, map[string]any{"suggestedWindow": map[string]time.Time{"start": later, "end": later.Add(time.Hour)}})
}

func (a *authority) newOrder(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Identifiers []struct{ Value string } }
	a.read(r, &asked)
	a.orders = append(a.orders, &order{name: asked.Identifiers[0].Value})
	if a.refuses != "" {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(map[string]any{"type": "urn:ietf:params:acme:error:" + a.refuses, "detail": "not for you", "status": http.StatusForbidden})
		return
	}
	r.SetPathValue("n", strconv.Itoa(len(a.orders)-1))
	w.Header().Set("Location", a.URL+"/order/"+r.PathValue("n"))
	a.tell(w, r, http.StatusCreated)
}

func (a *authority) order(r *http.Request) *order {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n >= len(a.orders) {
		a.t.Errorf("%s: no such order", r.URL)
		return &order{}
	}
	return a.orders[n]
}

// tell says what has become of an order.
func (a *authority) tell(w http.ResponseWriter, r *http.Request, code int) {
	o, n, status := a.order(r), r.PathValue("n"), "pending"
	v := map[string]any{
		"identifiers":    []map[string]string{{"type": "dns", "value": o.name}},
		"authorizations": []string{a.URL + "/authz/" + n}, "finalize": a.URL + "/finalize/" + n,
	}
	switch {
	case o.chain != nil:
		status, v["certificate"] = "valid", a.URL+"/cert/"+n
	case o.proved:
		status = "ready"
	}
	v["status"] = status
	say(w, code, v)
}

// status is what a proof has come to.
func (o *order) status() string {
	if o.proved {
		return "valid"
	}
	return "pending"
}

func (a *authority) authorization(w http.ResponseWriter, r *http.Request) {
	o, n := a.order(r), r.PathValue("n")
	say(w, http.StatusOK, map[string]any{
		"status": o.status(), "identifier": map[string]string{"type": "dns", "value": o.name},
		"challenges": []map[string]string{{"type": "http-01", "url": a.URL + "/challenge/" + n, "token": "token" + n, "status": o.status()}},
	})
}

// challenge asks the question, as a client that knows nothing but the name.
func (a *authority) challenge(w http.ResponseWriter, r *http.Request) {
	o, n := a.order(r), r.PathValue("n")
	req, err := http.NewRequest(http.MethodGet, "http://"+a.plain+"/.well-known/acme-challenge/token"+n, nil)
	if err != nil {
		a.t.Error(err)
		return
	}
	req.Host = o.name
	if res, err := http.DefaultClient.Do(req); err == nil {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		o.proved = res.StatusCode == http.StatusOK && strings.HasPrefix(string(text), "token"+n+".")
	}
	if !o.proved {
		a.t.Errorf("the question for %s is not answered", o.name)
	}
	say(w, http.StatusOK, map[string]string{"type": "http-01", "url": a.URL + "/challenge/" + n, "token": "token" + n, "status": o.status()})
}

func (a *authority) finalize(w http.ResponseWriter, r *http.Request) {
	var asked struct{ CSR string }
	a.read(r, &asked)
	o := a.order(r)
	der, err := base64.RawURLEncoding.DecodeString(asked.CSR)
	if err != nil {
		a.t.Error(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil || len(csr.DNSNames) != 1 || csr.DNSNames[0] != o.name {
		a.t.Errorf("asked to sign %v, %v; want %s", csr, err, o.name)
		return
	}
	now := time.Now().Add(-a.age)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.orders))), DNSNames: csr.DNSNames, NotBefore: now, NotAfter: now.Add(lifetime),
		Subject: pkix.Name{CommonName: o.name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if a.status != "" {
		leaf.OCSPServer, leaf.IssuingCertificateURL = []string{a.status}, []string{a.status}
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, SubjectKeyId: []byte{1}}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, root, csr.PublicKey, a.key)
	if err != nil {
		a.t.Error(err)
	}
	o.chain = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	a.tell(w, r, http.StatusOK)
}

// asked are the names of all orders so far.
func (a *authority) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, o := range a.orders {
		names = append(names, o.name)
	}
	return names
}
