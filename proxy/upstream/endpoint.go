package upstream

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

const (
	echoHost = "echo"
	// socketHost is the host of a unix socket in URLs, because net/http requires one.
	// The number of the target precedes it. The name cannot exist in the DNS (RFC
	// 6761).
	socketHost = "socket.invalid."
)

// An endpoint is the address of a target.
type endpoint struct {
	name         string // the URL, for logs
	scheme, host string
	socket       string // the path of the unix socket, or ""
	authority    string // Host of requests that Weir generates itself, as health checks
}

// newEndpoint returns the endpoint of a target.
func newEndpoint(u *url.URL) endpoint {
	if u.Scheme == "unix" {
		return endpoint{name: "unix:" + u.Path, scheme: "http", socket: u.Path, authority: "localhost"}
	}
	return endpoint{name: u.String(), scheme: u.Scheme, host: u.Host, authority: u.Host}
}

// resolve resolves the host names of the targets every interval until ctx is done. If
// an address has been removed, the existing connections complete their requests and are
// then closed; new connections use the new addresses. A failed lookup changes nothing.
func (p *Pool) resolve(ctx context.Context, hosts []string) {
	every := time.NewTicker(p.config.Resolve)
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
		found, err := p.config.Resolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			continue
		}
		before, asked := known[host]
		isGone := func(a netip.Addr) bool { return !slices.Contains(found, a) }
		gone = gone || !asked || slices.ContainsFunc(before, isGone)
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
		_, err = netip.ParseAddr(host)
		isName := err != nil && host[0] != '[' && m.socket == "" && m.host != echoHost
		if isName && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// TargetStandings returns the state of all targets, in the order of the configuration, without the counts of requests,
// and the number of requests in the queue.
func (p *Pool) TargetStandings() (all []view.TargetStanding, waiting int) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	now := time.Now()
	for _, m := range p.backends {
		s := view.TargetState{
			State: view.Healthy, InFlight: int(m.inFlight.Sum()), FailedConnects: m.failedConnects, FailedChecks: m.failedChecks,
			Share: m.slowStartFactor(now, &p.config.Health),
		}
		switch {
		case p.unhealthy(m):
			s.State = view.Unhealthy
		case now.Before(m.ejectedUntil):
			s.State, s.EjectedUntil = view.Ejected, m.ejectedUntil
		case p.ejects() && m.failedConnects >= p.config.Health.After:
			s.State = view.Probing
		case s.Share < 1:
			s.State = view.SlowStart
		}
		all = append(all, view.TargetStanding{Target: m.name, Weight: int(m.weight), TargetState: s})
	}
	return all, len(p.group.waiting)
}
