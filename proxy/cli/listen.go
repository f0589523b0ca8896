package cli

import (
	"context"
	"net"

	"github.com/weir-proxy/weir/proxy/config"
)

// A listening is where connections come in, and what serves them.
type listening struct {
	net.Listener
	name  string // "http", "https" or "admin"
	serve func(net.Listener) error
}

// listen opens all listeners and reads the certificates. When it returns an
// error, nothing is left open.
func (s *service) listen(ctx context.Context, c *config.Config) error {
	from, err := inherit(c.Listen.ReusePort)
	if err == nil {
		err = s.open(from, "admin", c.Admin.HTTP, s.admins.Serve)
	}
	if err == nil && c.Listen.HTTP != "" {
		err = s.open(from, "http", c.Listen.HTTP, s.clients.Serve)
	}
	if err == nil && c.Listen.HTTPS != "" {
		err = s.openTLS(ctx, from, c.Listen)
	}
	if err == nil && c.Admin.HTTPS != "" {
		err = s.openAdminTLS(from, c.Admin.HTTPS)
	}
	if unused := from.rest(); err == nil {
		err = unused
	}
	if err != nil {
		for _, l := range s.listening {
			l.Close()
		}
		s.closeIssuer()
	}
	return err
}

func (s *service) open(from sockets, name, addr string, serve func(net.Listener) error) error {
	l, err := from.open(name, addr)
	if err != nil {
		return err
	}
	s.listening = append(s.listening, listening{l, name, serve})
	return nil
}

// address is where the listener of that name takes connections; "" if there is
// none.
func (s *service) address(name string) string {
	for _, l := range s.listening {
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
