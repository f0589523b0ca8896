package node

import (
	"context"
	"crypto/x509"
	"net"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/frontend"
)

// A listener is a socket and its server.
type listener struct {
	net.Listener
	name string // http, https, admin or admin_https
}

// listen opens all sockets, loads the certificates and creates the servers, without
// accepting connections.
func (n *Node) listen(ctx context.Context, c *config.Config) error {
	from, err := inherit(c.Listen)
	if err != nil {
		return err
	}
	for _, at := range []struct{ name, addr string }{
		{"admin", c.Admin.HTTP}, {"http", c.Listen.HTTP}, {"https", c.Listen.HTTPS}, {"admin_https", c.Admin.HTTPS},
	} {
		if err == nil && at.addr != "" {
			err = n.open(from, at.name, at.addr)
		}
		if err == nil && at.name == "https" && at.addr != "" {
			err = n.certify(ctx, c.Listen)
		}
	}
	if unused := from.rest(); err == nil {
		err = unused
	}
	if err != nil {
		return err
	}
	n.admins = frontend.NewServer(admin.New(n.adminOptions()), adminBounds(c.Listen), n.log)
	var clients frontend.Handler = n.proxy
	if n.issuer != nil {
		clients = frontend.WithChallenges(n.proxy, n.issuer)
	}
	n.clients = frontend.NewServer(clients, c.Listen, n.log)
	return nil
}

func (n *Node) open(from sockets, name, addr string) error {
	l, err := from.open(name, addr)
	if err != nil {
		return err
	}
	n.listeners = append(n.listeners, listener{l, name})
	n.closers.push(name+" listener", func(context.Context) error { l.Close(); return nil }) // usually already closed by draining
	return nil
}

// accept serves a listener until draining closes it. Otherwise it returns an error.
func (n *Node) accept(l listener) error {
	switch l.name {
	case "admin":
		return n.admins.Serve(l.Listener)
	case "admin_https":
		if ca := n.source.own.Admin.ClientCA; ca != "" {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM([]byte(ca)) // validated by package config
			return n.admins.ServeMutualTLS(l.Listener, n.certificates, roots)
		}
		return n.admins.ServeTLS(l.Listener, n.certificates)
	case "https":
		return n.clients.ServeTLS(l.Listener, n.certificates)
	default:
		return n.clients.Serve(l.Listener)
	}
}

// Address returns the address of the listener with this name (http, https, admin or
// admin_https); "" if there is none.
func (n *Node) Address(name string) string {
	for _, l := range n.listeners {
		if l.name == name {
			return l.Addr().String()
		}
	}
	return ""
}

// adminBounds returns the limits of the admin listener: those for clients, without features
// that only clients have.
func adminBounds(c config.Listen) config.Listen {
	return config.Listen{Timeouts: c.Timeouts, MaxHeader: c.MaxHeader}
}
