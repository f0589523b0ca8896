// Package upstream forwards requests to the servers behind Weir and relays
// their responses, streaming in both directions.
//
// A [Pool] keeps the connections of one upstream. [Pool.Forward] promises that
// the request arrives with its method, path, query, host and end-to-end fields
// as they were, that hop-by-hop fields are not forwarded, that clients cannot
// spoof the fields in which Weir describes the client, that only WebSocket is
// upgraded and only on a route that allows it, and that a truncated response is
// visible as truncated to the client.
//
// It does not limit, match, log or generate error responses: it takes a [Request], writes the response to a [Sink],
// and returns a [Result]. A sender sends a request over HTTP/1.1, over HTTP/2 or to the built-in echo;
// Pool.sendWithRetries, which is independent of the protocol, selects the backend and retries. It retries on another
// target if the previous one has certainly not seen the request, or if the request can be repeated safely, and ejects
// failing targets, as configured by [Config]. A request on a reused connection that the target had closed in the
// meantime is always retried, if no target has seen it, or if it is idempotent and has no body.
package upstream

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/reuse"
	"github.com/weir-proxy/weir/proxy/view"
)

// A Config is an upstream, and what its pool shares with others. In an upstream that config has not compiled a weight of 0
// means 1, a timeout to connect of 0 means 2 s and one of the response 30 s; the zero Health disables all checks.
type Config struct {
	config.Upstream
	// Resolver resolves the host names of targets; the default is net.DefaultResolver.
	Resolver *net.Resolver
	// Groups keeps the health of targets across pools.
	Groups *Groups
	// Pseudonym identifies this process in Via. Requests that return to it are
	// recognized by it (loop detection). All pools of a process have the same.
	Pseudonym string
}

// A Pool forwards requests to the targets of one upstream. It is safe for concurrent
// use.
//
// Pools of the same upstream in one Groups share the health of the targets and the
// queue, which are guarded by a mutex per upstream.
type Pool struct {
	config           Config
	backends         []*backend
	scratch          []*backend // for pick; guarded by the group
	group            *group
	currentTransport atomic.Pointer[transportRef]
	buffers          *bufferPool

	via11 string // element of Via for HTTP/1.1

	stop       context.CancelFunc // ends the goroutines of Start
	background sync.WaitGroup
	closeOnce  sync.Once
}

// A transport holds the connections of a pool: HTTP/1.1, HTTP/2, or none for the
// built-in echo.
type transport interface {
	// sender returns a sender for one request.
	sender(f *forwarding) sender
	// probe sends an active health check to m and reads the response.
	probe(ctx context.Context, m *backend, path, via string) (status int, err error)
	// CloseIdleConnections closes all idle connections. Connections in use are closed
	// after their request.
	CloseIdleConnections()
}

// A transportRef wraps a transport for atomic.Pointer.
type transportRef struct{ transport }

// New returns a Pool of a Config that is valid, as package config checks it. It does not connect, and starts no
// goroutines before Start.
func New(c Config) *Pool {
	c.Resolver = cmp.Or(c.Resolver, net.DefaultResolver)
	p := &Pool{config: c, buffers: &bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}}
	p.via11 = "1.1 " + p.config.Pseudonym
	p.addBackends()
	p.group = p.config.Groups.join(c.Name)
	for _, m := range p.backends {
		m.targetHealth = p.group.join(m.name)
	}
	if c.Echo {
		p.currentTransport.Store(&transportRef{echo{}})
	} else {
		p.currentTransport.Store(&transportRef{p.newTransport()})
	}
	return p
}

// addBackends creates the backends.
func (p *Pool) addBackends() {
	if p.config.Echo {
		p.addBackend(endpoint{name: echoHost, scheme: "http", host: echoHost}, 1)
	}
	for _, from := range p.config.Targets {
		t := newEndpoint(from.URL)
		if t.socket != "" {
			t.host = strconv.Itoa(len(p.backends)) + "." + socketHost
		}
		p.addBackend(t, max(from.Weight, 1))
	}
}

func (p *Pool) addBackend(t endpoint, weight int) {
	p.backends = append(p.backends, &backend{
		endpoint: t, number: len(p.backends), weight: float64(weight), nameHash: xxhash.Sum64String(t.name),
	})
}

// Name returns the name of the upstream.
func (p *Pool) Name() string { return p.config.Name }

// transport returns the current transport.
func (p *Pool) transport() *transportRef { return p.currentTransport.Load() }

// newTransport returns a transport without connections.
func (p *Pool) newTransport() transport {
	if p.config.Protocol == config.ProtocolH2 || p.config.Protocol == config.ProtocolH2C {
		return newHTTP2(p.config, p.backends)
	}
	return newHTTP1(p.config, p.backends)
}

// ejects reports whether the pool ejects failing targets.
func (p *Pool) ejects() bool { return p.config.Health.After > 0 }

// Start starts active health checks and the resolution of host names, if they are
// configured. It must be called at most once. Retire or Close ends both.
func (p *Pool) Start() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.config.Health.Path != "" && !p.config.Echo {
		for _, m := range p.backends {
			p.background.Go(func() { p.checkHealth(ctx, m, p.probe) })
		}
	}
	if hosts := p.hostnames(); p.config.Resolve > 0 && len(hosts) > 0 {
		p.background.Go(func() { p.resolve(ctx, hosts) })
	}
}

// Retire stops what Start has started, and waits for it. Requests in progress continue.
func (p *Pool) Retire() {
	if p.stop != nil {
		p.stop()
	}
	p.background.Wait()
}

// Close retires the pool and closes idle connections. Requests in progress continue,
// and their connections are closed afterwards.
func (p *Pool) Close() {
	p.Retire()
	p.transport().CloseIdleConnections()
	p.closeOnce.Do(func() {
		for _, m := range p.backends {
			p.group.leave(m.name)
		}
		p.config.Groups.leave(p.config.Name)
	})
}

// bufferSize is the size of the buffers that response bodies are read into.
const bufferSize = 32 << 10

// A bufferPool holds the buffers through which response bodies are copied.
type bufferPool struct{ pool sync.Pool }

// Get returns a buffer.
func (b *bufferPool) Get() []byte { return b.pool.Get().(*[bufferSize]byte)[:] }

// Put returns a buffer to the pool.
func (b *bufferPool) Put(buf []byte) {
	if buf = reuse.Memory(buf); buf != nil {
		b.pool.Put((*[bufferSize]byte)(buf[:bufferSize]))
	}
}

// errBodyTimeout reports that a target sent nothing for too long in the middle of a
// response.
var errBodyTimeout = errors.New("timeout between reads of the response body")

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
