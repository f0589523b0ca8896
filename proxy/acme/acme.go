// Package acme gets certificates from an authority that speaks ACME (RFC 8555),
// proves to it that the names are ours, and renews what it gave in time.
//
// Certificates, their keys and the account are kept in a folder: a weir that
// starts again has its certificates at once, and several that share the folder
// ask once for all of them and answer for each other. What is in the folder
// belongs to who may read it.
//
// It stands on certmagic, and is a package of its own so that nothing else does.
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/rs/zerolog"
	"go.uber.org/zap"

	"github.com/weir-proxy/weir/proxy/config"
)

// loadTimeout is how long reading what the folder has may take. Asking whether
// somebody has revoked it is part of that.
const loadTimeout = 10 * time.Second

// Options are what a Manager needs beside its configuration.
type Options struct {
	Log zerolog.Logger
	// Plain and Secure are where HTTP and HTTPS are listened on, host:port; Plain is
	// empty for nowhere. The authority's questions arrive there.
	Plain, Secure string
	// Check is how often certificates are looked at for being due; 0 is ten minutes.
	Check time.Duration
}

// A Manager has the certificates for the names of one configuration. It is safe
// for concurrent use.
type Manager struct {
	names   []string
	log     zerolog.Logger
	closing atomic.Bool
	cache   *certmagic.Cache
	config  *certmagic.Config
	issuer  *certmagic.ACMEIssuer
}

// New reads what the folder has, and makes the folder if there is none. It asks
// the authority nothing: Run does. What it makes ends with Close.
func New(ctx context.Context, c config.ACME, o Options) (*Manager, error) {
	if err := os.MkdirAll(c.Storage, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for certificates: %w", err)
	}
	issuer, err := template(c, o)
	if err != nil {
		return nil, err
	}
	m := &Manager{names: c.Domains, log: o.Log}
	issuer.Logger = zap.New(logBridge{o.Log.With().Str("component", "acme").Logger(), &m.closing})
	m.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return m.config, nil },
		RenewCheckInterval: o.Check,
		Logger:             issuer.Logger,
	})
	m.config = certmagic.New(m.cache, certmagic.Config{
		Storage:            &certmagic.FileStorage{Path: c.Storage},
		DefaultServerName:  c.Domains[0],
		FallbackServerName: c.Domains[0],
		OnEvent:            m.event,
		Logger:             issuer.Logger,
	})
	m.issuer = certmagic.NewACMEIssuer(m.config, issuer)
	m.config.Issuers = []certmagic.Issuer{m.issuer}
	m.load(ctx)
	return m, nil
}

// template is the issuer that c describes. Its ports are those that we listen on:
// certmagic finds them taken and leaves the answering to us.
func template(c config.ACME, o Options) (certmagic.ACMEIssuer, error) {
	t := certmagic.ACMEIssuer{
		CA: c.Directory, Email: c.Email, Agreed: true,
		DisableHTTPChallenge: !c.HTTP, DisableTLSALPNChallenge: !c.ALPN,
	}
	var err error
	if c.HTTP {
		if t.ListenHost, t.AltHTTPPort, err = split(o.Plain); err != nil {
			return t, err
		}
	}
	if c.ALPN {
		if t.ListenHost, t.AltTLSALPNPort, err = split(o.Secure); err != nil {
			return t, err
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

func split(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("address for challenges: %w", err)
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

// load takes up what the folder has. What cannot be read is asked for anew.
func (m *Manager) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	for _, name := range m.names {
		_, err := m.config.CacheManagedCertificate(ctx, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.Error().Err(err).Str("name", name).Msg("certificate in storage cannot be used")
		}
	}
}

// Run asks for the certificates that are missing, again and again until there is
// each, and has those renewed that are due, until ctx is done. The listeners must
// take connections by then.
func (m *Manager) Run(ctx context.Context) {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var asking sync.WaitGroup
	for _, name := range m.names {
		if len(m.held(name)) == 0 {
			asking.Go(func() { m.obtain(working, name) })
		}
	}
	if err := m.cache.RenewManagedCertificates(working); err != nil { // from then on the cache does it by itself
		m.log.Error().Err(err).Msg("certificates are not renewed yet")
	}
	<-ctx.Done()
	m.closing.Store(true) // what is broken off from here on is no fault
	stop()
	asking.Wait()
}

// obtain asks for one certificate until it is given; certmagic waits longer from
// one time to the next.
func (m *Manager) obtain(ctx context.Context, name string) {
	m.log.Info().Str("name", name).Msg("certificate asked for")
	err := m.obtainIfMissing(ctx, name)
	if errors.Is(err, errInvalidCertificate) && ctx.Err() == nil {
		// To certmagic files that are there are a certificate, whatever they hold.
		err = m.config.Storage.Delete(ctx, certmagic.StorageKeys.CertsSitePrefix(m.issuer.IssuerKey(), name))
		if err == nil {
			err = m.obtainIfMissing(ctx, name)
		}
	}
	if err != nil && ctx.Err() == nil {
		m.log.Error().Err(err).Str("name", name).Msg("certificate not obtained; restart weir to ask again")
	}
}

// errInvalidCertificate says that what is in the files of a certificate is none.
var errInvalidCertificate = errors.New("not a certificate and its key")

// obtainIfMissing asks for a certificate unless storage has one, and takes it up.
func (m *Manager) obtainIfMissing(ctx context.Context, name string) error {
	if err := m.config.ObtainCertAsync(ctx, name); err != nil {
		return err
	}
	_, err := m.config.CacheManagedCertificate(ctx, name)
	if _, unreadable := errors.AsType[*fs.PathError](err); err != nil && !unreadable {
		return fmt.Errorf("%w: %w", errInvalidCertificate, err)
	}
	return err
}

// event is told what certmagic has done.
func (m *Manager) event(_ context.Context, what string, data map[string]any) error {
	if what == "cert_obtained" {
		name, _ := data["identifier"].(string)
		renewed, _ := data["renewal"].(bool)
		m.log.Info().Str("name", name).Bool("renewed", renewed).Msg("certificate obtained")
	}
	return nil
}

// Close ends what New has begun. Run must have ended.
func (m *Manager) Close() { m.cache.Stop() }

// held are the certificates for name.
func (m *Manager) held(name string) []certmagic.Certificate {
	return m.cache.AllMatchingCertificates(name)
}

// Names are those that there are certificates for, or will be.
func (m *Manager) Names() []string { return m.names }

// Held are the certificates that there are, one or none for each name.
func (m *Manager) Held() []*x509.Certificate {
	var all []*x509.Certificate
	for _, name := range m.names {
		for _, c := range m.held(name) {
			all = append(all, c.Leaf)
		}
	}
	return all
}

// Certificate is the one to show to a client: that for the name it asks for, and
// the first name's when it asks for none of ours; or, to the authority, the proof
// it asks for. It is an error when there is none yet.
func (m *Manager) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return m.config.GetCertificate(hello)
}
