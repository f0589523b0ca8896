package node

import (
	"context"
	"net"

	"github.com/weir-proxy/weir/proxy/config"
)

// A listener is where connections come in, and what serves them.
type listener struct {
	net.Listener
	name  string // "http", "https" or "admin"
	serve func(net.Listener) error
}

// listen opens all listeners and reads the certificates.
func (n *Node) listen(ctx context.Context, c *config.Config) error {
	from, err := inherit(c.Listen.ReusePort)
	if err == nil {
		err = n.open(from, "admin", c.Admin.HTTP, n.admins.Serve)
	}
	if err == nil && c.Listen.HTTP != "" {
		err = n.open(from, "http", c.Listen.HTTP, n.clients.Serve)
	}
	if err == nil && c.Listen.HTTPS != "" {
		err = n.openTLS(ctx, from, c.Listen)
	}
	if err == nil && c.Admin.HTTPS != "" {
		err = n.openAdminTLS(from, c.Admin.HTTPS)
	}
	if unused := from.rest(); err == nil {
		err = unused
	}
	return err
}

func (n *Node) open(from sockets, name, addr string, serve func(net.Listener) error) error {
	l, err := from.open(name, addr)
	if err != nil {
		return err
	}
	n.listeners = append(n.listeners, listener{l, name, serve})
	n.closers.push(name+" listener", func(context.Context) error { l.Close(); return nil }) // draining has closed it, mostly
	return nil
}

// Address is where the listener of that name takes connections; "" if there is
// none.
func (n *Node) Address(name string) string {
	for _, l := range n.listeners {
		if l.name == name {
			return l.Addr().String()
		}
	}
	return ""
}

// operators are the bounds of the admin listener: those of clients, without
// what only clients are offered.
func operators(c config.Listen) config.Listen {
	return config.Listen{Timeouts: c.Timeouts, MaxHeader: c.MaxHeader}
}
