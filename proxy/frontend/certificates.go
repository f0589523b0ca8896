package frontend

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
)

// Certificates are what TLS clients are shown. Whoever watches their files has them
// read again. It is safe for concurrent use, but for Reload.
type Certificates struct {
	log     zerolog.Logger
	files   []config.Pair
	issuer  Issuer            // nil for none
	pairs   []tls.Certificate // as files; only Reload changes them
	current atomic.Pointer[tls.Config]
}

// An Issuer has certificates that no file has, and renews them by itself. It must
// be safe for concurrent use.
type Issuer interface {
	// Names are those that it has certificates for, or will have.
	Names() []string
	// Certificate is the one to show to a client, or to who asks for proof that a
	// name is ours; an error when there is none yet.
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Certificates are the certificates that it has now.
	Certificates() []*x509.Certificate
}

// alpnACME is the protocol of an authority that asks whether a name is ours (RFC
// 8737): it goes when it has seen the certificate.
const alpnACME = "acme-tls/1"

// LoadCertificates reads pairs of files. One that cannot be read, or does not
// fit its key, is an error. An issuer, unless nil, has further certificates; for
// its names they go before those of files.
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

// swapConfig makes what clients are shown of the pairs. A client is shown the first
// that fits the name it asks for and what it can verify; when none does, the
// first of all.
func (c *Certificates) swapConfig() {
	next := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: slices.Clone(c.pairs),
	}
	if c.issuer != nil {
		next.GetCertificate = c.fromIssuer
	}
	c.current.Store(next)
}

// fromIssuer is the issuer's certificate for a client; nil where those of files are
// to be shown: for other names, and until the issuer has its own.
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

// config is for connections from now on, whenever the pairs change.
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

// mutualConfig is config for those alone who show a certificate that one of roots has signed
// (mutual TLS). Each connection is asked: none goes on from an earlier one.
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

// Files are those that the certificates were read from, and their keys.
func (c *Certificates) Files() []string {
	var all []string
	for _, f := range c.files {
		all = append(all, f.Cert, f.Key)
	}
	return all
}

// Reload reads the files again. A pair that cannot be used leaves the one before it
// in place. Connections that stand are not touched. It logs what it has loaded only
// when clients are shown it. It is for one goroutine at a time.
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

// warnIfInvalid says when a certificate is of no use to clients.
func (c *Certificates) warnIfInvalid(f config.Pair, pair tls.Certificate) {
	if now := time.Now(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		c.log.Warn().Str("file", f.Cert).Time("from", pair.Leaf.NotBefore).Time("until", pair.Leaf.NotAfter).Msg("certificate not valid now")
	}
}
