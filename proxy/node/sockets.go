package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/weir-proxy/weir/proxy/config"
)

// sockets opens listeners: sockets that systemd passed to this process, by name, and otherwise the
// configured addresses. Sockets of systemd outlive this process, so that connections wait in their
// queue while weir is restarted.
type sockets struct {
	inherited map[string][]net.Listener
	reusePort bool // SO_REUSEPORT
}

// inherit takes over the sockets passed by systemd. Their units have FileDescriptorName=http, https
// or admin.
func inherit(l config.Listen) (sockets, error) {
	passed, err := activation.ListenersWithNames()
	if err != nil {
		return sockets{}, fmt.Errorf("sockets of systemd: %w", err)
	}
	return sockets{passed, l.ReusePort}, nil
}

// open returns the listener with that name: the one passed by systemd, otherwise a new one on addr.
func (s sockets) open(name, addr string) (net.Listener, error) {
	if of := s.inherited[name]; len(of) == 1 && of[0] != nil {
		if _, ok := of[0].Addr().(*net.TCPAddr); !ok {
			return nil, fmt.Errorf("systemd passed %s as a %s socket; write host:port into ListenStream=", name, of[0].Addr().Network())
		}
		delete(s.inherited, name)
		return inherited{of[0]}, nil
	}
	c := net.ListenConfig{}
	if s.reusePort {
		c.Control = reusePort
	}
	l, err := c.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w%s", listenField(name), err, listenHint(err))
	}
	return l, nil
}

// listenField returns the field of the configuration with the address of a listener.
func listenField(name string) string {
	if rest, ok := strings.CutPrefix(name, "admin"); ok {
		return "admin." + cmp.Or(strings.TrimPrefix(rest, "_"), "http")
	}
	switch name {
	case "decide":
		return "listen.decide.http"
	case "decide_grpc":
		return "listen.decide.grpc"
	}
	return "listen." + name
}

// listenHint returns what to do about an address that cannot be listened on.
func listenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "; is another weir running?"
	case errors.Is(err, syscall.EACCES):
		return "; ports below 1024 need the capability CAP_NET_BIND_SERVICE (setcap, or AmbientCapabilities= of systemd) or root: or write a port such as :8080"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "; this machine has no such address"
	}
	return ""
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
