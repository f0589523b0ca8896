package node

import (
	"context"
	"net"
	"sync"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/config"
)

// openTLS opens the listener for HTTPS and gets at the certificates.
func (n *Node) openTLS(ctx context.Context, from sockets, c config.Listen) error {
	err := n.open(from, "https", c.HTTPS, func(l net.Listener) error { return n.clients.ServeTLS(l, n.certificates) })
	if err != nil {
		return err
	}
	var issuer proxy.Issuer
	if c.ACME != nil {
		at := acme.Options{Log: n.log, Plain: n.Address("http"), Secure: n.Address("https")}
		if n.issuer, err = acme.New(ctx, *c.ACME, at); err != nil {
			return err
		}
		n.closers.push("certificate authority", func(context.Context) error { n.issuer.Close(); return nil })
		issuer = n.issuer
	}
	if n.certificates, err = proxy.LoadCertificates(c.TLS, issuer, n.log); err != nil {
		return err
	}
	n.registry.MustRegister(n.certificates.Expiry())
	return nil
}

// openAdminTLS opens the admin listener in TLS, with the same certificates.
func (n *Node) openAdminTLS(from sockets, addr string) error {
	return n.open(from, "admin_https", addr, func(l net.Listener) error { return n.admins.ServeTLS(l, n.certificates) })
}

// renew takes up certificates that change and asks for those that are due, until
// ctx is done.
func (n *Node) renew(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	if n.issuer != nil {
		asking.Go(func() { n.issuer.Run(ctx) })
	}
	if n.certificates == nil {
		return
	}
	if err := n.certificates.Watch(ctx); err != nil {
		n.log.Error().Err(err).Msg("certificates are not reloaded; restart weir after they change")
	}
}
