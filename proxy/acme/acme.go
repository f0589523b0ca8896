// Package acme obtains certificates from an ACME certificate authority (RFC
// 8555), answers its challenges, and renews the certificates before they
// expire.
//
// Certificates, their keys and the account are stored in a directory, so that a
// restarted process has its certificates at once. Several processes may share
// the directory: they order each certificate once and answer each other's
// challenges. The directory holds private keys and must be protected
// accordingly.
//
// It is built on certmagic. No other package depends on certmagic.
package acme

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weir-proxy/weir/proxy/config"
)

// Options are the parts of a Manager that do not come from its configuration.
type Options struct {
	Log zerolog.Logger
	// HTTPAddr and Secure are the HTTP and HTTPS listeners, host:port, which receive
	// the challenges. Plain may be empty.
	HTTPAddr, HTTPSAddr string
	// Check is how often certificates are checked for renewal, and orders that failed are repeated; 0 means ten minutes.
	Check time.Duration
}

// A Manager holds the certificates for the domains of one configuration. It is
// safe for concurrent use.
type Manager struct {
	names   []string
	log     zerolog.Logger
	check   time.Duration // between orders that fail
	closing atomic.Bool
	cache   *certmagic.Cache
	config  *certmagic.Config
	issuer  *certmagic.ACMEIssuer
}

// New loads the stored certificates, and creates the directory if necessary. It
// does not contact the authority; Run does. The Manager must be closed.
func New(ctx context.Context, c config.ACME, o Options) (*Manager, error) {
	if err := os.MkdirAll(c.Storage, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for certificates: %w", err)
	}
	issuer, err := template(c, o)
	if err != nil {
		return nil, err
	}
	m := &Manager{names: c.Domains, log: o.Log, check: cmp.Or(o.Check, certmagic.DefaultRenewCheckInterval)}
	issuer.Logger = zap.New(logBridge{o.Log.With().Str("component", "acme").Logger(), &m.closing})
	m.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return m.config, nil },
		RenewCheckInterval: m.check,
		Logger:             issuer.Logger,
	})
	m.config = certmagic.New(m.cache, certmagic.Config{
		Storage:            &certmagic.FileStorage{Path: c.Storage},
		DefaultServerName:  c.Domains[0],
		FallbackServerName: c.Domains[0],
		OCSP:               certmagic.OCSPConfig{DisableStapling: true}, // it would wait for the authority without a timeout
		OnEvent:            m.event,
		Logger:             issuer.Logger,
	})
	m.issuer = certmagic.NewACMEIssuer(m.config, issuer)
	m.config.Issuers = []certmagic.Issuer{m.issuer}
	m.load(ctx)
	return m, nil
}

// template returns the issuer that c describes. Its ports are those of our
// listeners: certmagic finds them in use and leaves the challenges to us.
func template(c config.ACME, o Options) (certmagic.ACMEIssuer, error) {
	t := certmagic.ACMEIssuer{
		CA: c.Directory, Email: c.Email, Agreed: true,
		DisableHTTPChallenge: !c.HTTP, DisableTLSALPNChallenge: !c.ALPN,
	}
	for _, l := range []struct {
		isUsed bool
		addr   string
		port   *int
	}{{c.HTTP, o.HTTPAddr, &t.AltHTTPPort}, {c.ALPN, o.HTTPSAddr, &t.AltTLSALPNPort}} {
		at, err := netip.ParseAddrPort(l.addr)
		switch {
		case l.isUsed && err != nil:
			return t, fmt.Errorf("address for challenges: %w", err)
		case l.isUsed:
			t.ListenHost, *l.port = at.Addr().String(), int(at.Port())
		}
	}
	if c.CA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return t, fmt.Errorf("read acme.ca: %w", err)
	}
	t.TrustedRoots = x509.NewCertPool()
	if !t.TrustedRoots.AppendCertsFromPEM(pem) {
		return t, fmt.Errorf("acme.ca: %s has no certificate in PEM", c.CA)
	}
	return t, nil
}

// load loads the stored certificates. Unreadable ones are ordered again.
func (m *Manager) load(ctx context.Context) {
	for _, name := range m.names {
		_, err := m.config.CacheManagedCertificate(ctx, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.Error().Err(err).Str("name", name).Msg("certificate in storage cannot be used")
		}
	}
}

// Run obtains missing certificates, with retries, and renews those that are due,
// until ctx is done. The listeners must already accept connections.
func (m *Manager) Run(ctx context.Context) {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var asking sync.WaitGroup
	for _, name := range m.names {
		if len(m.cache.AllMatchingCertificates(name)) == 0 {
			asking.Go(func() { m.obtain(working, name) })
		}
	}
	asking.Go(func() { // of an authority that may be silent
		if err := m.cache.RenewManagedCertificates(working); err != nil { // later the cache renews them by itself
			m.log.Error().Err(err).Msg("certificates are not renewed yet")
		}
	})
	<-ctx.Done()
	m.closing.Store(true) // errors of interrupted orders are not logged as errors from here on
	stop()
	asking.Wait()
}

// obtain orders one certificate until it succeeds. certmagic backs off between attempts, but gives up at once if the storage
// cannot be written, or if the authority fails after its staging environment has not.
func (m *Manager) obtain(ctx context.Context, name string) {
	m.log.Info().Str("name", name).Msg("certificate requested")
	for pause := time.Second; ; pause = m.check {
		err := m.obtainIfMissing(ctx, name)
		if err == nil || ctx.Err() != nil {
			return
		}
		m.log.Error().Err(err).Str("name", name).Dur("again_in_ms", pause).Msg("certificate order failed")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// obtainIfMissing orders a certificate unless the storage has one, and loads it. Files that are not a certificate and its
// key are deleted: certmagic takes existing ones for a certificate, whatever they contain.
func (m *Manager) obtainIfMissing(ctx context.Context, name string) error {
	if err := m.config.ObtainCertAsync(ctx, name); err != nil {
		return err
	}
	_, err := m.config.CacheManagedCertificate(ctx, name)
	if _, unreadable := errors.AsType[*fs.PathError](err); err != nil && !unreadable && ctx.Err() == nil {
		return errors.Join(err, m.config.Storage.Delete(ctx, certmagic.StorageKeys.CertsSitePrefix(m.issuer.IssuerKey(), name)))
	}
	return err
}

// event logs an event of certmagic.
func (m *Manager) event(_ context.Context, what string, data map[string]any) error {
	if what == "cert_obtained" {
		m.log.Info().Any("name", data["identifier"]).Any("renewed", data["renewal"]).Msg("certificate obtained")
	}
	return nil
}

// Close releases the Manager. Run must have returned. It does not wait for a check that has begun: the authority may be
// silent, and its questions have no context of ours.
func (m *Manager) Close() { go m.cache.Stop() }

// Names returns the managed domains.
func (m *Manager) Names() []string { return m.names }

// Certificates returns the certificates that exist, at most one for each domain.
func (m *Manager) Certificates() []*x509.Certificate {
	var all []*x509.Certificate
	for _, name := range m.names {
		for _, c := range m.cache.AllMatchingCertificates(name) {
			all = append(all, c.Leaf)
		}
	}
	return all
}

// Certificate returns the certificate for a handshake
// (tls.Config.GetCertificate): the one for the requested server name, or that of
// the first domain for other names, or the challenge certificate for tls-alpn-01.
// It returns an error if there is none yet.
func (m *Manager) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.config.GetCertificate(hello)
}

// AnswerChallenge returns the answer to an http-01 challenge, which is sent as text/plain (RFC
// 8555 section 8.3). It returns false if r, a request without TLS, is not a challenge that a
// process with the same storage has started.
func (m *Manager) AnswerChallenge(r *http.Request) (answer []byte, ok bool) {
	w := answerRecorder{header: http.Header{}}
	ok = m.isManaged(r.Host) && m.issuer.HandleHTTPChallenge(&w, r)
	return w.Bytes(), ok
}

// An answerRecorder is the http.ResponseWriter to which certmagic writes an answer.
type answerRecorder struct {
	header http.Header
	bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answerRecorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. It is never called: the status is 200.
func (*answerRecorder) WriteHeader(int) {}

// isManaged reports whether host is a managed domain; only then is the storage read.
func (m *Manager) isManaged(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return slices.Contains(m.names, strings.ToLower(strings.TrimSuffix(host, ".")))
}

// A logBridge is a zapcore.Core that writes the log of certmagic to our log.
// Progress messages, and everything during shutdown, are written at debug level.
type logBridge struct {
	log     zerolog.Logger
	closing *atomic.Bool
}

// level maps a zap level to a zerolog level.
func (b logBridge) level(l zapcore.Level) zerolog.Level {
	switch {
	case b.closing.Load():
		return zerolog.DebugLevel
	case l >= zapcore.ErrorLevel:
		return zerolog.ErrorLevel
	case l == zapcore.WarnLevel:
		return zerolog.WarnLevel
	}
	return zerolog.DebugLevel
}

// Enabled implements zapcore.LevelEnabler.
func (b logBridge) Enabled(l zapcore.Level) bool { return b.level(l) >= b.log.GetLevel() }

// With implements zapcore.Core.
func (b logBridge) With(fields []zapcore.Field) zapcore.Core {
	return logBridge{b.log.With().Fields(fieldValues(fields)).Logger(), b.closing}
}

// Check implements zapcore.Core.
func (b logBridge) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return c.AddCore(e, b)
	}
	return c
}

// Write implements zapcore.Core.
func (b logBridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	b.log.WithLevel(b.level(e.Level)).Fields(fieldValues(fields)).Msg(e.Message)
	return nil
}

// Sync implements zapcore.Core; nothing is buffered.
func (logBridge) Sync() error { return nil }

// fieldValues returns the fields as a map.
func fieldValues(fields []zapcore.Field) map[string]any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	return m.Fields
}
