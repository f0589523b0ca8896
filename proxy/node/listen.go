package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decide"
	"github.com/weir-proxy/weir/proxy/frontend"
)

// A listener is a socket that accepts connections.
type listener struct {
	net.Listener
	name string // http, https, admin, admin_https, decide or decide_grpc
}

// listen opens all sockets, loads the certificates and creates the servers. It does not accept
// connections yet.
func (n *Node) listen(ctx context.Context, o Options) error {
	c := o.Config
	from, err := inherit(c.Listen)
	if err != nil {
		return err
	}
	for _, at := range []struct{ name, addr string }{
		{"admin", c.Admin.HTTP}, {"http", c.Listen.HTTP}, {"https", c.Listen.HTTPS}, {"admin_https", c.Admin.HTTPS},
		{"decide", decideAddresses(c.Listen).HTTP}, {"decide_grpc", decideAddresses(c.Listen).GRPC},
	} {
		if err == nil && at.addr != "" {
			err = n.open(from, at.name, at.addr)
		}
		if err == nil && at.name == "https" && at.addr != "" {
			err = n.loadCertificates(ctx, c.Listen)
		}
	}
	if unused := from.closeUnused(); err == nil {
		err = unused
	}
	if err != nil {
		return err
	}
	n.admins = frontend.NewNetHTTPServer(admin.New(n.adminOptions()), adminBounds(c.Listen), n.log)
	var clients frontend.Handler = n.proxy
	if n.issuer != nil {
		clients = frontend.WithChallenges(n.proxy, n.issuer)
	}
	n.clients = frontend.NewServer(clients, c.Listen, n.log)
	n.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_proxy_protocol_errors_total", Help: "Connections that were closed because their PROXY protocol header was missing or not valid.",
	}, func() float64 { return float64(n.clients.BadProxyHeaders()) }))
	if c.Listen.Decide != nil {
		return n.listenForPeers(c.Listen)
	}
	return nil
}

// decideAddresses returns the configuration with the addresses on which other proxies ask, "" for none.
func decideAddresses(c config.Listen) config.Decide {
	if c.Decide == nil {
		return config.Decide{}
	}
	return *c.Decide
}

// listenForPeers creates the servers for other proxies that ask.
func (n *Node) listenForPeers(c config.Listen) (err error) {
	var secure *tls.Config
	if len(c.Decide.TLS) > 0 {
		if n.peerFacing, err = frontend.LoadCertificates(c.Decide.TLS, nil, n.log); err != nil {
			return err
		}
		var roots *x509.CertPool
		if c.Decide.ClientCA != "" {
			roots = authorities(c.Decide.ClientCA)
		}
		secure = n.peerFacing.TLSConfig(roots)
	}
	h := decide.New(n.proxy, *c.Decide, n.registry)
	if c.Decide.HTTP != "" {
		n.deciders = frontend.NewHTTP1Server(h.ServeHTTP1, adminBounds(c), n.log)
	}
	if c.Decide.GRPC != "" {
		n.rateLimits = h.NewEnvoyServer(secure, n.log)
	}
	return nil
}

func (n *Node) open(from sockets, name, addr string) error {
	l, err := from.open(name, addr)
	if err != nil {
		return err
	}
	n.listeners = append(n.listeners, listener{l, name})
	n.closers.push(name+" listener", func(context.Context) error { l.Close(); return nil }) // usually closed by draining before
	return nil
}

// accept serves the connections of one listener until draining closes it. It returns an error if
// the listener fails.
func (n *Node) accept(l listener) error {
	switch l.name {
	case "admin":
		return n.admins.Serve(l.Listener)
	case "admin_https":
		if ca := n.source.machine.Admin.ClientCA; ca != "" {
			return n.admins.ServeMutualTLS(l.Listener, n.certificates, authorities(ca))
		}
		return n.admins.ServeTLS(l.Listener, n.certificates)
	case "decide_grpc":
		return n.rateLimits.Serve(l.Listener)
	case "decide":
		return n.acceptPeers(l.Listener, n.source.machine.Listen.Decide.ClientCA)
	case "https":
		return n.clients.ServeTLS(l.Listener, n.certificates)
	default:
		return n.clients.Serve(l.Listener)
	}
}

// acceptPeers serves the proxies that ask for decisions.
func (n *Node) acceptPeers(l net.Listener, ca string) error {
	switch {
	case n.peerFacing == nil:
		return n.deciders.Serve(l)
	case ca == "":
		return n.deciders.ServeTLS(l, n.peerFacing)
	}
	return n.deciders.ServeMutualTLS(l, n.peerFacing, authorities(ca))
}

// authorities returns the authorities of client certificates.
func authorities(ca string) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca)) // checked when the configuration was loaded
	return roots
}

// Address returns the address of the listener with that name (http, https, admin, admin_https, decide or
// decide_grpc), or "".
func (n *Node) Address(name string) string {
	for _, l := range n.listeners {
		if l.name == name {
			return l.Addr().String()
		}
	}
	return ""
}

// adminBounds returns the limits of the admin listeners: those for clients, without features
// offered to clients only.
func adminBounds(c config.Listen) config.Listen {
	return config.Listen{Timeouts: c.Timeouts, MaxHeader: c.MaxHeader}
}
