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
// and returns a [Result]. A sender sends a request over HTTP/1.1, over HTTP/2 or to the built-in echo; Pool.sendWithRetries, which
// is independent of the protocol, selects the backend and retries. It retries on another target if the previous one
// has certainly not seen the request, or if the request can be repeated safely, and ejects failing targets, as
// configured by [Config]. A request on a reused connection that the target had closed in the meantime is always
// retried, if no target has seen it, or if it is idempotent and has no body.
package upstream

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// ErrConfig reports that a Config cannot be a Pool.
var ErrConfig = errors.New("upstream not valid")

// A Config describes one upstream.
type Config struct {
	Name string
	// Echo makes the built-in upstream that answers each request as JSON;
	// Targets is then empty.
	Echo    bool
	Targets []Target
	Balance Balance
	// ConnectTimeout is the most time that a connection to a target may take, 2 s if
	// 0; Response the most until a response begins after the request was sent,
	// and the most that a target may take none of the request, 30 s if 0.
	ConnectTimeout, ResponseTimeout time.Duration
	// TLSHandshakeTimeout is the most time that TLS may take; if 0, Connect is for both.
	// Idle is the most that a target may send nothing in the middle of a
	// response, without end if 0. It does not bind WebSocket.
	TLSHandshakeTimeout, BodyTimeout time.Duration
	// MaxConnections is the most requests that one target works on at a time,
	// over HTTP/1.1 also the most connections it has; 0 is any number. What
	// exceeds it waits in the queue, first come first served.
	MaxConnections int
	Queue          Queue
	// Retries is how many more targets one request may be taken to.
	Retries int
	Health  Health
	// Protocol is what targets speak.
	Protocol Protocol
	// ResolveInterval is how often the names of targets are looked up again, so that
	// connections to addresses that are gone end; 0 is never. Resolver looks
	// them up, that of the machine if nil.
	ResolveInterval time.Duration
	Resolver        *net.Resolver
	// Groups remembers how targets fare beyond this pool; nil remembers nothing.
	Groups *Groups
	// TLS is how https targets are trusted, by the roots of the machine if nil.
	// It is not changed.
	TLS *tls.Config
	// Pseudonym is this process in Via, by which it knows requests that come
	// back to it. All pools of a process should have the same. When it is empty
	// the pool makes one up: "weir-" and 8 random hexadecimal digits.
	Pseudonym string
}

// A Queue is where requests wait while all targets are full.
type Queue struct {
	Length  int // requests that may wait; 0 is none
	Timeout time.Duration
}

// A Protocol is a version of HTTP.
type Protocol uint8

// The protocols. Only HTTP1 can carry WebSocket.
const (
	HTTP1 Protocol = iota
	HTTP2          // over TLS
	H2C            // HTTP/2 in the clear, known beforehand
)

// A Target is one server. URL has scheme http or https, a host, and maybe a
// path that is put in front of every request's path; or it is unix: and the
// path of a socket. Weight is its share of
// requests, at most 1000; 0 means 1.
type Target struct {
	URL    *url.URL
	Weight int
}

// A Pool forwards to the targets of one upstream. It is safe for concurrent use.
//
// It shares with the other pools of its Groups how targets fare and which
// requests wait; a mutex of the upstream guards that.
type Pool struct {
	config           Config
	backends         []*backend
	scratch          []*backend // for choose; guarded by the group
	groups           *Groups
	group            *group
	currentTransport atomic.Pointer[transportRef]
	resolver         *net.Resolver
	buffers          *bufferPool
	pseudonym        string

	forwardingPool sync.Pool // of *forwarding

	via11 string // how this process tells of itself over HTTP/1.1

	balance         Balance
	maxConnections  int
	queue           Queue
	retries         int
	health          Health
	resolveInterval time.Duration
	bodyTimeout     time.Duration

	stop       context.CancelFunc // ends what Start has started
	background sync.WaitGroup
	closeOnce  sync.Once
}

// A transport keeps the connections of a pool: of HTTP/1.1, of HTTP/2, or none for the
// built-in echo.
type transport interface {
	// sender makes what sends one request over it.
	sender(f *forwarding) sender
	// probe asks m for a path, in a request of our own, and reads the response.
	probe(ctx context.Context, m *backend, path, via string) (status int, err error)
	// CloseIdleConnections closes all connections, those in use after their request.
	CloseIdleConnections()
}

// A transportRef is the transport that requests are sent over now.
type transportRef struct{ transport }

// New makes a Pool. It dials nothing, and starts nothing before Start. Errors
// wrap ErrConfig.
func New(c Config) (*Pool, error) {
	p := &Pool{
		config: c, groups: c.Groups, resolver: c.Resolver,
		buffers: newBufferPool(), pseudonym: c.Pseudonym,
		balance: c.Balance, maxConnections: c.MaxConnections, queue: c.Queue, retries: c.Retries, health: c.Health, resolveInterval: c.ResolveInterval, bodyTimeout: c.BodyTimeout,
	}
	if p.pseudonym == "" {
		p.pseudonym = newPseudonym()
	}
	p.via11 = "1.1 " + p.pseudonym
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, c.Name, err)
	}
	if p.groups == nil {
		p.groups = NewGroups()
	}
	if p.resolver == nil {
		p.resolver = net.DefaultResolver
	}
	p.group = p.groups.join(c.Name)
	for _, m := range p.backends {
		m.targetHealth = p.group.join(m.name)
	}
	if c.Echo {
		p.currentTransport.Store(&transportRef{echo{}})
	} else {
		p.currentTransport.Store(&transportRef{p.newTransport()})
	}
	return p, nil
}

// validate makes the members of the pool, or says what cannot be.
func (p *Pool) validate() error {
	c := p.config
	for _, d := range []time.Duration{c.ConnectTimeout, c.ResponseTimeout, c.TLSHandshakeTimeout, c.BodyTimeout, c.Queue.Timeout, c.ResolveInterval, c.Health.EjectFor, c.Health.SlowStart} {
		if d < 0 {
			return errors.New("a time is negative")
		}
	}
	switch {
	case c.MaxConnections < 0 || c.Retries < 0 || c.Queue.Length < 0 || c.Health.FailureThreshold < 0:
		return errors.New("a number is negative")
	case c.Health.Path != "" && (c.Health.Path[0] != '/' || c.Health.Interval <= 0 || c.Health.Timeout <= 0 || c.Health.FailureThreshold == 0):
		return errors.New("health needs a path with a slash, an interval, a timeout and a number of failed checks")
	case c.Echo && len(c.Targets) > 0:
		return errors.New("either echo or targets")
	case c.Echo:
		p.addBackend(endpoint{name: echoHost, scheme: "http", host: echoHost}, 1)
		return nil
	case len(c.Targets) == 0:
		return errors.New("no targets")
	}
	for _, from := range c.Targets {
		t, err := newEndpoint(from)
		switch {
		case err != nil:
			return err
		case c.Protocol == HTTP2 && t.scheme != "https", c.Protocol == H2C && t.scheme != "http":
			return fmt.Errorf("target %s: h2 needs https, and h2c http", t.name)
		}
		if t.socket != "" {
			t.host = strconv.Itoa(len(p.backends)) + "." + socketHost
		}
		p.addBackend(t, max(from.Weight, 1))
	}
	return nil
}

func (p *Pool) addBackend(t endpoint, weight int) {
	p.backends = append(p.backends, &backend{endpoint: t, number: len(p.backends), weight: float64(weight), nameHash: xxhash.Sum64String(t.name)})
}

// Name is what the configuration calls the upstream.
func (p *Pool) Name() string { return p.config.Name }

// transport is what requests are sent over now.
func (p *Pool) transport() *transportRef { return p.currentTransport.Load() }

// newTransport makes a transport that holds no connections yet.
func (p *Pool) newTransport() transport {
	if p.config.Protocol == HTTP1 {
		return newHTTP1(p.config, p.backends)
	}
	return newHTTP2(p.config, p.backends)
}

// ejects reports whether the pool leaves targets alone that fail.
func (p *Pool) ejects() bool { return p.health.FailureThreshold > 0 }

// Start begins to look how the targets fare and where their names point, if the
// pool is to do that. It is called at most once; Retire or Close ends it.
func (p *Pool) Start() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.health.Path != "" && !p.config.Echo {
		for _, m := range p.backends {
			p.background.Go(func() { p.checkHealth(ctx, m, p.probe) })
		}
	}
	if hosts := p.hostnames(); p.resolveInterval > 0 && len(hosts) > 0 {
		p.background.Go(func() { p.resolve(ctx, hosts) })
	}
}

// Retire ends what Start has begun and waits for that: the pool gets no new
// requests. Those in progress go on.
func (p *Pool) Retire() {
	if p.stop != nil {
		p.stop()
	}
	p.background.Wait()
}

// A TargetState is how a target fares.
type TargetState struct {
	Target  string
	Healthy bool // it is asked before those that are not
}

// TargetStates tells how the targets fare now, in the order of the configuration.
func (p *Pool) TargetStates() []TargetState {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	now := time.Now()
	states := make([]TargetState, len(p.backends))
	for i, m := range p.backends {
		states[i] = TargetState{m.name, !(p.health.Path != "" && m.unhealthy) && !now.Before(m.ejectedUntil)}
	}
	return states
}

// newPseudonym makes a name that no other process has.
func newPseudonym() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weir-" + hex.EncodeToString(b[:])
}

// Close retires the pool and closes idle connections; requests in progress end
// in peace, and their connections are closed after them.
func (p *Pool) Close() {
	p.Retire()
	p.transport().CloseIdleConnections()
	p.closeOnce.Do(func() {
		for _, m := range p.backends {
			p.group.leave(m.name)
		}
		p.groups.leave(p.config.Name)
	})
}
