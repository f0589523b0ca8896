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
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/reuse"
)

// A Config describes one upstream.
type Config struct {
	Name string
	// Echo selects the built-in upstream, which responds to each request with a JSON
	// description of it. Targets must then be empty.
	Echo    bool
	Targets []Target
	Balance Balance
	// ConnectTimeout bounds establishing a connection to a target; the default is 2 s.
	// ResponseTimeout bounds the wait for the head of the response after the request
	// was sent, and each write of the request; the default is 30 s.
	ConnectTimeout, ResponseTimeout time.Duration
	// TLSHandshakeTimeout bounds the TLS handshake; if it is 0, ConnectTimeout bounds
	// both together. BodyTimeout bounds each wait for more of a response body; 0 means
	// no timeout. It does not apply to WebSocket.
	TLSHandshakeTimeout, BodyTimeout time.Duration
	// MaxConnections is the maximum number of requests in flight to one target; over
	// HTTP/1.1 this is also the maximum number of connections. 0 means no maximum.
	// Further requests wait in the queue, in order of arrival.
	MaxConnections int
	Queue          Queue
	// Retries is the maximum number of further targets for one request.
	Retries int
	Health  Health
	// Protocol is the HTTP version of the targets.
	Protocol Protocol
	// ResolveInterval is how often the host names of targets are resolved again, so
	// that connections to removed addresses end; 0 means never. Resolver resolves them;
	// the default is net.DefaultResolver.
	ResolveInterval time.Duration
	Resolver        *net.Resolver
	// Groups keeps the health of targets across pools. If it is nil, the pool starts
	// without any state.
	Groups *Groups
	// TLS is the TLS configuration for https targets. If it is nil, the root
	// certificates of the system are trusted. It is not modified.
	TLS *tls.Config
	// Pseudonym identifies this process in Via. Requests that return to it are
	// recognized by it (loop detection). All pools of a process have the same.
	Pseudonym string
}

// A Queue configures the waiting of requests while all targets are at MaxConnections.
type Queue struct {
	Length  int // maximum number of waiting requests; 0 disables the queue
	Timeout time.Duration
}

// A Protocol is a version of HTTP.
type Protocol uint8

// The protocols. Only HTTP1 supports WebSocket.
const (
	HTTP1 Protocol = iota
	HTTP2          // over TLS
	H2C            // HTTP/2 without TLS, with prior knowledge
)

// A Target is one server. URL has the scheme http or https and a host, and nothing else; or it is unix: and the path of a
// socket. Weight is its share of the requests; 0 means 1.
type Target struct {
	URL    *url.URL
	Weight int
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

	via11     string // element of Via for HTTP/1.1
	via11Line http1.FieldBlock

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
	p.via11Line, _ = http1.NewFieldBlock("Via", p.via11) // a token can be sent
	p.addBackends()
	if p.config.Groups == nil {
		p.config.Groups = NewGroups(1)
	}
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
	if p.config.Protocol == HTTP1 {
		return newHTTP1(p.config, p.backends)
	}
	return newHTTP2(p.config, p.backends)
}

// ejects reports whether the pool ejects failing targets.
func (p *Pool) ejects() bool { return p.config.Health.FailureThreshold > 0 }

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
	if hosts := p.hostnames(); p.config.ResolveInterval > 0 && len(hosts) > 0 {
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
