package cli

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
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

// An entrance takes clients' requests.
type entrance struct{ *service }

// ServeHTTP takes a client's request: an authority that asks whether a name is ours
// has its answer here, all others go by the routes.
func (e entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if e.issuer == nil || !e.issuer.Answer(w, r) {
		e.proxy.ServeHTTP(w, r)
	}
}

// ServeHTTP1 is ServeHTTP for HTTP/1.1.
func (e entrance) ServeHTTP1(x *http1.Exchange) {
	if e.issuer != nil && strings.HasPrefix(x.Path(), acme.Challenges) {
		x.ServeNet(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.issuer.Answer(w, r) }))
		if x.Begun() {
			return
		}
	}
	e.proxy.ServeHTTP1(x)
}

// RefuseHTTP1 answers what could not be read as a request.
func (e entrance) RefuseHTTP1(x *http1.Exchange, why error) { e.proxy.RefuseHTTP1(x, why) }

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
