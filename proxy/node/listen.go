package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/decide"
	"github.com/weir-proxy/weir/proxy/frontend"
	"github.com/weir-proxy/weir/proxy/view"
)

// A listener is a socket that accepts connections.
type listener struct {
	net.Listener
	name string // http, https, admin, admin_https, decide or decide_grpc
}

// A place is where a listener is opened: its name, and the field of the configuration that has its address.
type place struct{ name, field, addr string }

// placesOf returns the places of all listeners in their order; those without an address are not opened.
func placesOf(c *config.Config) []place {
	decide := cmp.Or(c.Listen.Decide, &config.Decide{})
	return []place{
		{"admin", "admin.http", c.Admin.HTTP},
		{"http", "listen.http", c.Listen.HTTP},
		{"https", "listen.https", c.Listen.HTTPS},
		{"admin_https", "admin.https", c.Admin.HTTPS},
		{"decide", "listen.decide.http", decide.HTTP},
		{"decide_grpc", "listen.decide.grpc", decide.GRPC},
	}
}

// listen opens all sockets, loads the certificates and creates the servers. It does not accept
// connections yet.
func (n *Node) listen(ctx context.Context, o Options) error {
	c := o.Config
	passed, err := activation.ListenersWithNames()
	if err != nil {
		return fmt.Errorf("sockets of systemd: %w", err)
	}
	from := sockets{passed, c.Listen.ReusePort}
	for _, at := range placesOf(c) {
		at.field = o.Path + ": " + at.field
		if err == nil && at.addr != "" {
			err = n.open(from, at)
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
	n.admins = frontend.NewNetHTTPServer(admin.New(n.adminOptions()), c.Listen)
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

// listenForPeers creates the servers for other proxies that ask.
func (n *Node) listenForPeers(c config.Listen) (err error) {
	var secure *tls.Config
	if len(c.Decide.TLS) > 0 {
		if n.peerFacing, err = frontend.LoadCertificates(c.Decide.TLS, nil, n.log); err != nil {
			return err
		}
		secure = n.peerFacing.TLSConfig(authorities(c.Decide.ClientCA))
	}
	h := decide.New(n.proxy, *c.Decide, n.registry)
	if c.Decide.HTTP != "" {
		n.deciders = frontend.NewHTTP1Server(h.ServeHTTP1, c, n.log)
	}
	if c.Decide.GRPC != "" {
		n.rateLimits = h.NewEnvoyServer(secure, n.log)
	}
	return nil
}

func (n *Node) open(from sockets, at place) error {
	l, err := from.open(at)
	if err == nil {
		n.listeners = append(n.listeners, listener{l, at.name})
		n.closers.push(at.name+" listener", func(context.Context) error { l.Close(); return nil }) // usually closed by draining before
	}
	return err
}

// accept serves the connections of one listener until draining closes it. It returns an error if
// the listener fails.
func (n *Node) accept(l listener) error {
	switch l.name {
	case "admin":
		return n.admins.Serve(l.Listener)
	case "admin_https":
		return n.admins.ServeTLS(l.Listener, n.certificates, authorities(n.source.machine.Admin.ClientCA))
	case "decide_grpc":
		return n.rateLimits.Serve(l.Listener)
	case "decide":
		if n.peerFacing == nil {
			return n.deciders.Serve(l.Listener)
		}
		return n.deciders.ServeTLS(l.Listener, n.peerFacing, authorities(n.source.machine.Listen.Decide.ClientCA))
	case "https":
		return n.clients.ServeTLS(l.Listener, n.certificates, nil)
	default:
		return n.clients.Serve(l.Listener)
	}
}

// authorities returns the authorities of client certificates, or nil if clients need none.
func authorities(ca string) *x509.CertPool {
	if ca == "" {
		return nil
	}
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

// sockets opens listeners: sockets that systemd passed to this process, by name, and otherwise the
// configured addresses. Sockets of systemd outlive this process, so that connections wait in their
// queue while weir is restarted. Their units have FileDescriptorName=http, https or admin.
type sockets struct {
	inherited map[string][]net.Listener
	reusePort bool // SO_REUSEPORT
}

// open returns the listener of a place: the one passed by systemd, otherwise a new one.
func (s sockets) open(at place) (net.Listener, error) {
	if of := s.inherited[at.name]; len(of) == 1 && of[0] != nil {
		if _, ok := of[0].Addr().(*net.TCPAddr); !ok {
			return nil, fmt.Errorf("systemd passed %s as a %s socket; write host:port into ListenStream=", at.name, of[0].Addr().Network())
		}
		delete(s.inherited, at.name)
		return inherited{of[0]}, nil
	}
	c := net.ListenConfig{}
	if s.reusePort {
		c.Control = reusePort
	}
	l, err := c.Listen(context.Background(), "tcp", at.addr)
	if failed, is := errors.AsType[*net.OpError](err); is {
		cause, _ := errors.AsType[syscall.Errno](err)
		err = fmt.Errorf("%s: %s: %w%s", at.field, at.addr, failed.Err, listenHint(cause))
	}
	return l, err
}

// listenHint returns what to do about an address that cannot be listened on.
func listenHint(cause syscall.Errno) string {
	return map[syscall.Errno]string{
		syscall.EADDRINUSE:    "; end the program that listens there, such as another weir, or write another address",
		syscall.EACCES:        "; ports below 1024 need the capability CAP_NET_BIND_SERVICE (setcap, or AmbientCapabilities= of systemd) or root: or write a port such as :8080",
		syscall.EADDRNOTAVAIL: "; this machine has no such address",
	}[cause]
}

// closeUnused closes the passed sockets that were not opened, and returns an error about them.
func (s sockets) closeUnused() error {
	names := slices.Sorted(maps.Keys(s.inherited))
	if len(names) == 0 {
		return nil
	}
	name, of := names[0], s.inherited[names[0]]
	for _, l := range of {
		if l != nil { // nil for a descriptor that is not a listening socket
			l.Close()
		}
	}
	if len(of) > 1 {
		return fmt.Errorf("systemd passed %d sockets named %s; one ListenStream= has one name", len(of), name)
	}
	return fmt.Errorf("systemd passed a socket named %s, but nothing is served there; "+
		"write FileDescriptorName=http, https or admin into its unit, and listen.https into the configuration if that is meant", name)
}

// An inherited is a listener passed by systemd (socket activation). It hides the methods of the
// socket that would affect the next process which uses it.
type inherited struct{ net.Listener }

// loadCertificates loads the certificates. With ACME, the authority validates through the open listeners.
func (n *Node) loadCertificates(ctx context.Context, c config.Listen) (err error) {
	var issuer frontend.Issuer
	if c.ACME != nil {
		at := acme.Options{Log: n.log, HTTPAddr: n.Address("http"), HTTPSAddr: n.Address("https")}
		if n.issuer, err = acme.New(ctx, *c.ACME, at); err != nil {
			return err
		}
		n.closers.push("certificate authority", func(context.Context) error { n.issuer.Close(); return nil })
		issuer = n.issuer
	}
	if n.certificates, err = frontend.LoadCertificates(c.TLS, issuer, n.log); err != nil {
		return err
	}
	n.registry.MustRegister(n.certificates.Expiry())
	return nil
}

// renewCertificates reloads certificates when their files change, and renews those of ACME, until ctx is done.
func (n *Node) renewCertificates(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	if n.issuer != nil {
		asking.Go(func() { n.issuer.Run(ctx) })
	}
	shown := slices.DeleteFunc([]*frontend.Certificates{n.certificates, n.peerFacing}, func(c *frontend.Certificates) bool { return c == nil })
	if len(shown) == 0 {
		return
	}
	files := slices.Concat(view.Each(shown, (*frontend.Certificates).Files)...)
	reload := func(context.Context) {
		for _, c := range shown {
			c.Reload()
		}
	}
	if err := watch(ctx, func(*fsnotify.Watcher) []string { return files }, reload); err != nil {
		n.log.Error().Err(err).Msg("certificates are not reloaded; restart weir after they change")
	}
}
