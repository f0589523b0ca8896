package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// maxWeight is the largest weight of a target.
const maxWeight = 1000

const (
	echoHost = "echo"
	// socketHost is the host of a unix socket in URLs, because net/http requires one.
	// The number of the target precedes it. The name cannot exist in the DNS (RFC
	// 6761).
	socketHost = "socket.invalid."
)

// An endpoint is the parsed and validated URL of a target.
type endpoint struct {
	name         string // the URL, for logs
	scheme, host string
	basePath     string // escaped path without a trailing slash
	socket       string // the path of the unix socket, or ""
	authority    string // Host of requests that Weir generates itself, as health checks
}

// newEndpoint validates a target.
func newEndpoint(from Target) (endpoint, error) {
	u := from.URL
	switch {
	case u == nil:
		return endpoint{}, errors.New("a target has no URL")
	case from.Weight < 0 || from.Weight > maxWeight:
		return endpoint{}, fmt.Errorf("target %s: weight %d; write 1 to %d", u.Redacted(), from.Weight, maxWeight)
	case u.Scheme == "unix":
		return newUnixEndpoint(u)
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("target %s: write http://HOST, https://HOST or unix:/PATH", u.Redacted())
	case u.Host == "" || u.Opaque != "":
		return endpoint{}, fmt.Errorf("target %s: no host", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return endpoint{}, fmt.Errorf("target %s: leave out user, query and fragment", u.Redacted())
	}
	base := strings.TrimRight(u.EscapedPath(), "/")
	return endpoint{name: u.String(), scheme: u.Scheme, host: u.Host, basePath: base, authority: u.Host}, nil
}

// newUnixEndpoint validates the URL of a unix socket.
func newUnixEndpoint(u *url.URL) (endpoint, error) {
	if u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") {
		return endpoint{}, fmt.Errorf("target %s: write unix:/PATH", u.Redacted())
	}
	return endpoint{name: "unix:" + u.Path, scheme: "http", socket: u.Path, authority: "localhost"}, nil
}

// resolve resolves the host names of the targets every interval until ctx is done. If
// an address has been removed, the existing connections complete their requests and are
// then closed; new connections use the new addresses. A failed lookup changes nothing.
func (p *Pool) resolve(ctx context.Context, hosts []string) {
	every := time.NewTicker(p.config.ResolveInterval)
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

// A Condition is the condition of a target.
type Condition string

// The conditions of a target.
const (
	Healthy   Condition = "healthy"
	SlowStart Condition = "slow_start" // recovered: its share grows
	Probing   Condition = "probing"    // its ejection has ended: the next request tests it
	Ejected   Condition = "ejected"    // by passive health checks (outlier detection)
	Unhealthy Condition = "unhealthy"  // by active health checks
)

// A TargetStatus is the health and the load of a target.
type TargetStatus struct {
	Target    string
	Weight    int
	Condition Condition
	InFlight  int // number of requests
	// FailedConnects and FailedChecks count consecutive failures.
	FailedConnects, FailedChecks int
	EjectedUntil                 time.Time // zero if it is not ejected
	Share                        float64   // of its weight; below 1 during a slow start
}

// IsPreferred reports whether the target is preferred over those of which it is not true.
func (s *TargetStatus) IsPreferred() bool { return s.Condition != Ejected && s.Condition != Unhealthy }

// TargetStatuses returns the status of all targets, in the order of the configuration,
// and the number of requests in the queue.
func (p *Pool) TargetStatuses() (all []TargetStatus, waiting int) {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	now := time.Now()
	for _, m := range p.backends {
		s := TargetStatus{
			Target: m.name, Weight: int(m.weight), Condition: Healthy, InFlight: int(m.inFlight.Sum()),
			FailedConnects: m.failedConnects, FailedChecks: m.failedChecks,
			Share: m.slowStartFactor(now, &p.config.Health),
		}
		switch {
		case p.unhealthy(m):
			s.Condition = Unhealthy
		case now.Before(m.ejectedUntil):
			s.Condition, s.EjectedUntil = Ejected, m.ejectedUntil
		case p.ejects() && m.failedConnects >= p.config.Health.FailureThreshold:
			s.Condition = Probing
		case s.Share < 1:
			s.Condition = SlowStart
		}
		all = append(all, s)
	}
	return all, len(p.group.waiting)
}
