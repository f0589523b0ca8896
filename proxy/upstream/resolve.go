package upstream

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// resolve resolves the host names of the targets every interval until ctx is done. If
// an address has been removed, the existing connections complete their requests and are
// then closed; new connections use the new addresses. A failed lookup changes nothing.
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

// addressRemoved resolves hosts, stores the addresses in known, and reports whether a
// known address is missing. The first successful lookup of a host also counts, because
// the addresses of connections made before it are not known.
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

// replaceTransport switches to a new transport. The connections of the old one are
// closed as soon as they are idle.
func (p *Pool) replaceTransport() {
	old := p.currentTransport.Swap(&transportRef{p.newTransport()})
	old.CloseIdleConnections()
}

// hostnames returns the hosts of the targets that are names, not addresses.
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
