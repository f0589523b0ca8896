package cli

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/config"
)

// openTLS opens the listener for HTTPS and gets at the certificates.
func (s *service) openTLS(ctx context.Context, from sockets, c config.Listen) error {
	err := s.open(from, "https", c.HTTPS, func(l net.Listener) error { return s.clients.ServeTLS(l, s.certificates) })
	if err != nil {
		return err
	}
	var issuer proxy.Issuer
	if c.ACME != nil {
		at := acme.Options{Log: s.log, Plain: s.address("http"), Secure: s.address("https")}
		if s.issuer, err = acme.New(ctx, *c.ACME, at); err != nil {
			return err
		}
		issuer = s.issuer
	}
	if s.certificates, err = proxy.LoadCertificates(c.TLS, issuer, s.log); err != nil {
		return err
	}
	s.registry.MustRegister(s.certificates.Expiry())
	return nil
}

// openAdminTLS opens the admin listener in TLS, with the same certificates.
func (s *service) openAdminTLS(from sockets, addr string) error {
	return s.open(from, "admin_https", addr, func(l net.Listener) error { return s.admins.ServeTLS(l, s.certificates) })
}

// enter takes a client's request: an authority that asks whether a name is ours
// has its answer here, all others go by the routes.
func (s *service) enter(w http.ResponseWriter, r *http.Request) {
	if s.issuer == nil || !s.issuer.Answer(w, r) {
		s.proxy.ServeHTTP(w, r)
	}
}

// renew takes up certificates that change and asks for those that are due, until
// ctx is done.
func (s *service) renew(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	if s.issuer != nil {
		asking.Go(func() { s.issuer.Run(ctx) })
	}
	if s.certificates == nil {
		return
	}
	if err := s.certificates.Watch(ctx); err != nil {
		s.log.Error().Err(err).Msg("certificates are not reloaded; restart weir after they change")
	}
}

func (s *service) closeIssuer() {
	if s.issuer != nil {
		s.issuer.Close()
	}
}
