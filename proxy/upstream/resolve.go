package upstream

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// resolve looks the names of the targets up again every interval until ctx is
// done. When an address is gone, the connections that there are serve their
// requests to the end and no further ones; new ones go where the names point to
// now. A name that cannot be looked up changes nothing.
func (p *Pool) resolve(ctx context.Context, hosts []string) {
	every := time.NewTicker(p.resolveInterval)
	defer every.Stop()
	known := map[string][]netip.Addr{}
	for {
		if p.addressRemoved(ctx, hosts, known) {
			p.replaceTransport()
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// addressRemoved looks hosts up, keeps what it finds in known, and reports whether an
// address that was known is gone. Where a connection went that was made before
// the first response nobody knows, so that the first response counts as a move.
func (p *Pool) addressRemoved(ctx context.Context, hosts []string, known map[string][]netip.Addr) bool {
	gone := false
	for _, host := range hosts {
		found, err := p.resolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			continue
		}
		before, asked := known[host]
		gone = gone || !asked || slices.ContainsFunc(before, func(a netip.Addr) bool { return !slices.Contains(found, a) })
		known[host] = found
	}
	return gone
}

// replaceTransport makes new connections of the pool. The old ones are closed as soon as
// they are idle, since nobody asks for them any more.
func (p *Pool) replaceTransport() {
	old := p.currentTransport.Swap(&transportRef{p.newTransport()})
	old.CloseIdleConnections()
}

// hostnames are the hosts of the targets that are names.
func (p *Pool) hostnames() []string {
	var hosts []string
	for _, m := range p.backends {
		host, _, err := net.SplitHostPort(m.host)
		if err != nil {
			host = m.host
		}
		if _, err := netip.ParseAddr(host); err != nil && m.socket == "" && m.host != echoHost && host[0] != '[' && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
