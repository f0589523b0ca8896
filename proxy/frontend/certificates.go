package frontend

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
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
		NextProtos:   append([]string{"h2"}, http1Protocols()...),
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

// http1Protocols returns the protocols of ALPN other than HTTP/2.
func http1Protocols() []string { return []string{"http/1.1", "http/1.0"} }

// TLSConfig returns a TLS configuration that always uses the current certificates, for these protocols of ALPN, by
// default all. With roots, clients must present a certificate that is signed by one of them (mutual TLS).
// Sessions are not resumed then, so that each connection presents it.
func (c *Certificates) TLSConfig(roots *x509.CertPool, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if roots == nil && c.issuer != nil && slices.Equal(hello.SupportedProtos, []string{alpnACME}) {
				return &tls.Config{
					MinVersion: tls.VersionTLS12, NextProtos: []string{alpnACME}, GetCertificate: c.issuer.Certificate,
				}, nil
			}
			next := c.current.Load().Clone()
			if len(protocols) > 0 {
				next.NextProtos = protocols
			}
			if roots != nil {
				next.ClientAuth, next.ClientCAs, next.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, roots, true
			}
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
	for i, f := range c.files {
		pair, err := load(f)
		if err != nil {
			c.log.Error().Err(err).Time("served_until", c.pairs[i].Leaf.NotAfter).
				Msg("certificate not loaded; keeping the previous one")
			continue
		}
		if slices.EqualFunc(pair.Certificate, c.pairs[i].Certificate, bytes.Equal) {
			continue
		}
		c.pairs[i] = pair
		c.swapConfig()
		c.log.Info().Str("file", f.Cert).Strs("names", pair.Leaf.DNSNames).Time("until", pair.Leaf.NotAfter).
			Msg("certificate loaded")
		c.warnIfInvalid(f, pair)
	}
}

// warnIfInvalid logs a warning if a certificate has expired or is not yet valid.
func (c *Certificates) warnIfInvalid(f config.Pair, pair tls.Certificate) {
	from, until := pair.Leaf.NotBefore, pair.Leaf.NotAfter
	if now := time.Now(); now.After(until) || now.Before(from) {
		c.log.Warn().Str("file", f.Cert).Time("from", from).Time("until", until).Msg("certificate not valid now")
	}
}

// challengePrefix is the path below which a certification authority requests the proof
// that this server controls a name (ACME HTTP-01 challenge, RFC 8555 section 8.3).
const challengePrefix = "/.well-known/acme-challenge/"

// A Challenger knows the answers to ACME challenges.
type Challenger interface {
	// AnswerChallenge returns the body of the response to r. It returns false if r is not a
	// challenge.
	AnswerChallenge(r *http.Request) (answer []byte, ok bool)
}

// WithChallenges returns a Handler that responds to ACME challenges with the answers of c,
// and passes all other requests to next.
func WithChallenges(next Handler, c Challenger) Handler { return challengeHandler{next, c} }

type challengeHandler struct {
	Handler
	challenger Challenger
}

// answer returns the answer to a request, if it is a challenge. Over TLS there are none.
func (h challengeHandler) answer(method, host, path string, peer netip.AddrPort) (answer []byte, ok bool) {
	if !strings.HasPrefix(path, challengePrefix) {
		return nil, false
	}
	path, _, _ = strings.Cut(path, "?")
	return h.challenger.AnswerChallenge(&http.Request{
		Method: method, Host: strings.Clone(host), URL: &url.URL{Path: strings.Clone(path)},
		RemoteAddr: peer.String(), Header: http.Header{},
	})
}

// ServeHTTP1 implements Handler.
func (h challengeHandler) ServeHTTP1(x *http1.Exchange) {
	if answer, ok := h.answer(x.Method(), x.Host(), x.Path(), x.Peer()); ok && !x.Secure() {
		x.Begin(http.StatusOK).Add("Content-Type", "text/plain")
		_ = x.Send(answer) // fails if the client is gone
		return
	}
	h.Handler.ServeHTTP1(x)
}

// BeginHTTP2 implements Handler.
func (h challengeHandler) BeginHTTP2(s *http2.Stream) bool {
	if answer, ok := h.answer(s.Method, s.Authority, s.Path, s.Peer()); ok && !s.Secure() {
		s.Start(http.StatusOK)
		s.Add("Content-Type", "text/plain")
		_ = s.Send(answer) // fails if the client is gone
		return false
	}
	return h.Handler.BeginHTTP2(s)
}

// Expiry returns a collector that exports the expiry time of each certificate; if there are several
// for one name, that of the first one to expire. The label is a name in a certificate
// of this server, so that the number of its values is bounded.
func (c *Certificates) Expiry() prometheus.Collector {
	desc := prometheus.NewDesc("weir_certificate_expiry_timestamp_seconds",
		"When the certificate for a name ends, in seconds since 1970.", []string{"name"}, nil)
	return prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
		ends := map[string]time.Time{}
		for _, one := range c.all() {
			name := one.Subject.CommonName
			if len(one.DNSNames) > 0 {
				name = one.DNSNames[0]
			}
			if end, ok := ends[name]; !ok || one.NotAfter.Before(end) {
				ends[name] = one.NotAfter
			}
		}
		for name, end := range ends {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(end.Unix()), name)
		}
	})
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
