package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
)

// Certificates are the certificates that TLS clients are shown. Their owner calls
// Reload when the files have changed. It is safe for concurrent use, except for Reload.
type Certificates struct {
	log     zerolog.Logger
	files   []config.Pair
	issuer  Issuer            // nil for none
	pairs   []tls.Certificate // in the order of files; only Reload changes them
	current atomic.Pointer[tls.Config]
}

// An Issuer provides certificates that are not in files, and renews them, for example
// by ACME. It must be safe for concurrent use.
type Issuer interface {
	// Names returns the names for which it has certificates or will have them.
	Names() []string
	// Certificate returns the certificate for a client, or for the certification
	// authority that validates a name. It returns an error if there is none yet.
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Certificates returns the current certificates.
	Certificates() []*x509.Certificate
}

// alpnACME is the protocol that a certification authority negotiates in order to
// validate a name (RFC 8737). It closes the connection after the handshake.
const alpnACME = "acme-tls/1"

// LoadCertificates reads pairs of certificate and key files. A file that cannot be
// read, or a key that does not match, is an error. issuer, if it is not nil, provides
// further certificates; for its names they take precedence over those of files.
func LoadCertificates(files []config.Pair, issuer Issuer, log zerolog.Logger) (*Certificates, error) {
	c := &Certificates{log: log, files: files, issuer: issuer}
	for _, f := range files {
		pair, err := load(f)
		if err != nil {
			return nil, err
		}
		c.pairs = append(c.pairs, pair)
		c.warnIfInvalid(f, pair)
	}
	c.swapConfig()
	return c, nil
}

func load(f config.Pair) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return pair, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	return pair, nil
}

// swapConfig installs the current pairs. A client is shown the first certificate that
// matches its server name and its signature algorithms; if none matches, the first one.
func (c *Certificates) swapConfig() {
	next := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1", "http/1.0"},
		Certificates: slices.Clone(c.pairs),
	}
	if c.issuer != nil {
		next.GetCertificate = c.fromIssuer
	}
	c.current.Store(next)
}

// fromIssuer returns the issuer's certificate for a client. It returns nil, so that a
// certificate of a file is shown, for other names and as long as the issuer has none.
func (c *Certificates) fromIssuer(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	files := len(c.files) > 0
	if files && !slices.Contains(c.issuer.Names(), strings.ToLower(hello.ServerName)) {
		return nil, nil
	}
	cert, err := c.issuer.Certificate(hello)
	if err != nil && files {
		return nil, nil
	}
	return cert, err
}

// config returns a TLS configuration that always uses the current certificates.
func (c *Certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if c.issuer != nil && slices.Equal(hello.SupportedProtos, []string{alpnACME}) {
				return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{alpnACME}, GetCertificate: c.issuer.Certificate}, nil
			}
			return c.current.Load(), nil
		},
	}
}

// mutualConfig is config for clients that must present a certificate signed by one of
// roots (mutual TLS). Session resumption is disabled, so that each connection presents
// it.
func (c *Certificates) mutualConfig(roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			next := c.current.Load().Clone()
			next.ClientAuth, next.ClientCAs, next.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, roots, true
			return next, nil
		},
	}
}

// TLSConfig returns the configuration of a server of another package: with roots, its clients must present a
// certificate signed by one of them; nil requires none.
func (c *Certificates) TLSConfig(roots *x509.CertPool) *tls.Config {
	if roots == nil {
		return c.config()
	}
	return c.mutualConfig(roots)
}

// withoutHTTP2 returns c, which is from config or mutualConfig, without HTTP/2 among its protocols.
func withoutHTTP2(c *tls.Config) *tls.Config {
	return &tls.Config{
		MinVersion: c.MinVersion,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			next, err := c.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			next = next.Clone()
			next.NextProtos = slices.DeleteFunc(slices.Clone(next.NextProtos), func(name string) bool { return name == "h2" })
			return next, nil
		},
	}
}

// Files returns the certificate and key files.
func (c *Certificates) Files() []string {
	var all []string
	for _, f := range c.files {
		all = append(all, f.Cert, f.Key)
	}
	return all
}

// Reload reads the files again. If a pair is invalid, the previous one stays in use.
// Existing connections are not affected. It logs the certificates that have changed,
// after clients are shown them. It must not be called concurrently.
func (c *Certificates) Reload() {
	var loaded []int
	for i, f := range c.files {
		pair, err := load(f)
		if err != nil {
			c.log.Error().Err(err).Time("served_until", c.pairs[i].Leaf.NotAfter).Msg("certificate not loaded; keeping the previous one")
			continue
		}
		if !bytes.Equal(pair.Certificate[0], c.pairs[i].Certificate[0]) {
			c.pairs[i] = pair
			loaded = append(loaded, i)
		}
	}
	if len(loaded) == 0 {
		return
	}
	c.swapConfig()
	for _, i := range loaded {
		f, leaf := c.files[i], c.pairs[i].Leaf
		c.log.Info().Str("file", f.Cert).Strs("names", leaf.DNSNames).Time("until", leaf.NotAfter).Msg("certificate loaded")
		c.warnIfInvalid(f, c.pairs[i])
	}
}

// warnIfInvalid logs a warning if a certificate has expired or is not yet valid.
func (c *Certificates) warnIfInvalid(f config.Pair, pair tls.Certificate) {
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		c.log.Warn().Str("file", f.Cert).Time("from", pair.Leaf.NotBefore).Time("until", pair.Leaf.NotAfter).Msg("certificate not valid now")
	}
}

// challengePrefix is the path below which a certification authority requests the proof
// that this server controls a name (ACME HTTP-01 challenge, RFC 8555 section 8.3).
const challengePrefix = "/.well-known/acme-challenge/"

// A ChallengeHandler responds to ACME challenges.
type ChallengeHandler interface {
	// ServeChallenge reports whether r was a challenge. If so, it has responded.
	ServeChallenge(w http.ResponseWriter, r *http.Request) bool
}

// WithChallenges returns a Handler that passes ACME challenges to c and all other
// requests to next.
func WithChallenges(next Handler, c ChallengeHandler) Handler { return challengeHandler{next, c} }

type challengeHandler struct {
	Handler
	challenger ChallengeHandler
}

// ServeHTTP1 implements Handler.
func (h challengeHandler) ServeHTTP1(x *http1.Exchange) {
	if strings.HasPrefix(x.Path(), challengePrefix) {
		x.ServeNetHTTP(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.challenger.ServeChallenge(w, r) }))
		if x.Committed() {
			return
		}
	}
	h.Handler.ServeHTTP1(x)
}

// BeginHTTP2 implements Handler.
func (h challengeHandler) BeginHTTP2(s *http2.Stream) bool {
	if !s.Secure() && strings.HasPrefix(s.Path, challengePrefix) && h.serveHTTP2(s) {
		return false
	}
	return h.Handler.BeginHTTP2(s)
}

// serveHTTP2 reports whether the request was a challenge. If so, it has responded.
func (h challengeHandler) serveHTTP2(s *http2.Stream) bool {
	path, _, _ := strings.Cut(s.Path, "?")
	w := &answerRecorder{header: http.Header{}, status: http.StatusOK}
	r := &http.Request{Method: s.Method, Host: s.Authority, URL: &url.URL{Path: path}, Body: http.NoBody, Header: http.Header{}}
	if !h.challenger.ServeChallenge(w, r) {
		return false
	}
	s.Start(w.status)
	for name, values := range w.header {
		for _, value := range values {
			s.Add(name, value)
		}
	}
	_ = s.Send(w.body.Bytes()) // fails if the client is gone
	return true
}

// An answerRecorder records an answer to a challenge.
type answerRecorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answerRecorder) Header() http.Header         { return a.header }
func (a *answerRecorder) WriteHeader(status int)      { a.status = status }
func (a *answerRecorder) Write(p []byte) (int, error) { return a.body.Write(p) }

// An expiryCollector exports the expiry time of each certificate; if there are several
// for one name, that of the first one to expire. The label is a name in a certificate
// of this server, so that the number of its values is bounded.
type expiryCollector struct {
	certificates *Certificates
	desc         *prometheus.Desc
}

// Expiry returns a collector for the expiry times of the certificates.
func (c *Certificates) Expiry() prometheus.Collector {
	return expiryCollector{c, prometheus.NewDesc("weir_certificate_expiry_timestamp_seconds",
		"When the certificate for a name ends, in seconds since 1970.", []string{"name"}, nil)}
}

// Describe implements prometheus.Collector.
func (e expiryCollector) Describe(to chan<- *prometheus.Desc) { to <- e.desc }

// Collect implements prometheus.Collector.
func (e expiryCollector) Collect(to chan<- prometheus.Metric) {
	ends := map[string]time.Time{}
	for _, c := range e.certificates.all() {
		name := c.Subject.CommonName
		if len(c.DNSNames) > 0 {
			name = c.DNSNames[0]
		}
		if end, ok := ends[name]; !ok || c.NotAfter.Before(end) {
			ends[name] = c.NotAfter
		}
	}
	for name, end := range ends {
		to <- prometheus.MustNewConstMetric(e.desc, prometheus.GaugeValue, float64(end.Unix()), name)
	}
}

// all returns all current certificates.
func (c *Certificates) all() []*x509.Certificate {
	var all []*x509.Certificate
	for _, pair := range c.current.Load().Certificates {
		all = append(all, pair.Leaf)
	}
	if c.issuer != nil {
		all = append(all, c.issuer.Certificates()...)
	}
	return all
}
