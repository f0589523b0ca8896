package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/weir-proxy/weir/proxy/config"
)

// sockets are where listeners come from: those that systemd opened before it
// started this process, by their names, and the addresses of the configuration
// for the rest. A socket of systemd's outlives this process, so that connections
// wait there while weir is restarted.
type sockets struct {
	passed map[string][]net.Listener
	reuse  bool // another process may listen there too
}

// inherit takes over what systemd passed. Its units say FileDescriptorName=http,
// https or admin.
func inherit(l config.Listen) (sockets, error) {
	passed, err := activation.ListenersWithNames()
	if err != nil {
		return sockets{}, fmt.Errorf("sockets of systemd: %w", err)
	}
	return sockets{passed, l.ReusePort}, nil
}

// open is the listener of that name. Without one of systemd's it listens on addr.
func (s sockets) open(name, addr string) (net.Listener, error) {
	if of := s.passed[name]; len(of) == 1 && of[0] != nil {
		if _, ok := of[0].Addr().(*net.TCPAddr); !ok {
			return nil, fmt.Errorf("systemd passed %s as a %s socket; write host:port into ListenStream=", name, of[0].Addr().Network())
		}
		delete(s.passed, name)
		return inherited{of[0]}, nil
	}
	c := net.ListenConfig{}
	if s.reuse {
		c.Control = reusePort
	}
	l, err := c.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w; is another weir running?", err)
	}
	return l, nil
}

// rest closes what nobody opened, and says what is wrong with it.
func (s sockets) rest() error {
	names := slices.Sorted(maps.Keys(s.passed))
	if len(names) == 0 {
		return nil
	}
	name, of := names[0], s.passed[names[0]]
	for _, l := range of {
		if l != nil { // no socket that is listened on
			l.Close()
		}
	}
	if len(of) > 1 {
		return fmt.Errorf("systemd passed %d sockets named %s; one ListenStream= has one name", len(of), name)
	}
	return fmt.Errorf("systemd passed a socket named %s, but nothing is served there; "+
		"write FileDescriptorName=http, https or admin into its unit, and listen.https into the configuration if that is meant", name)
}

// An inherited listener is systemd's (socket activation): nobody else may touch the socket itself, which
// the next weir will have.
type inherited struct{ net.Listener }
