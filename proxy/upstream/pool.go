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
	"github.com/weir-proxy/weir/proxy/http1"
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
	names     *names
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
	currentTransport atomic.Pointer[transport]
	buffers          sync.Pool // of *[bufferSize]byte, through which response bodies are copied

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

// New returns a Pool of a Config that is valid, as package config checks it. It does not connect, and starts no
// goroutines before Start.
func New(c Config) *Pool {
	c.names = &names{Dialer: net.Dialer{KeepAlive: 15 * time.Second, Resolver: cmp.Or(c.Resolver, net.DefaultResolver)}, known: map[string]addresses{}}
	p := &Pool{config: c, stop: func() {}}
	p.buffers.New = func() any { return new([bufferSize]byte) }
	p.via11 = "1.1 " + p.config.Pseudonym
	p.group = p.config.Groups.join(c.Name)
	p.addBackends()
	p.currentTransport.Store(new(p.newTransport()))
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
		endpoint: t, targetHealth: p.group.join(t.name),
		number: len(p.backends), weight: float64(weight), nameHash: xxhash.Sum64String(t.name),
	})
}

// Name returns the name of the upstream.
func (p *Pool) Name() string { return p.config.Name }

// transport returns the current transport.
func (p *Pool) transport() transport { return *p.currentTransport.Load() }

// newTransport returns a transport without connections.
func (p *Pool) newTransport() transport {
	switch {
	case p.config.Echo:
		return echo{}
	case p.config.Protocol == config.ProtocolH2, p.config.Protocol == config.ProtocolH2C:
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
	p.stop()
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
	repeat(ctx, p.config.Resolve, func() {
		if p.config.names.addressRemoved(ctx, hosts) {
			p.replaceTransport()
		}
	})
}

// names connects to host names, and keeps the addresses that each had last.
type names struct {
	net.Dialer
	mu    sync.Mutex
	known map[string]addresses // by host name
}

// addresses are those of a host name by the last lookup that succeeded. unanswered reports that
// a later one has not been answered.
type addresses struct {
	all        []netip.Addr
	unanswered bool
}

// addressRemoved resolves hosts, keeps the addresses, and reports whether a known address is
// missing. The first successful lookup of a host also counts, because the addresses of
// connections made before it are not known.
func (n *names) addressRemoved(ctx context.Context, hosts []string) (gone bool) {
	for _, host := range hosts {
		found, err := n.Resolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			continue
		}
		n.mu.Lock()
		before, asked := n.known[host]
		n.known[host] = addresses{all: found}
		n.mu.Unlock()
		gone = gone || !asked || slices.ContainsFunc(before.all, func(a netip.Addr) bool { return !slices.Contains(found, a) })
	}
	return gone
}

// dial connects to addr. If its name server does not answer or fails, it connects to the addresses that
// the name had last, and does so at once until a lookup of addressRemoved is answered. A name that does not exist has none.
func (n *names) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	host, port, _ := net.SplitHostPort(addr)
	n.mu.Lock()
	last := n.known[host]
	n.mu.Unlock()
	if !last.unanswered {
		var lookup *net.DNSError
		conn, err = n.DialContext(ctx, network, addr)
		if !errors.As(err, &lookup) || lookup.IsNotFound || len(last.all) == 0 {
			return conn, err
		}
		n.mu.Lock()
		last = n.known[host]
		last.unanswered = true
		n.known[host] = last
		n.mu.Unlock()
	}
	for _, a := range last.all {
		if conn, err = n.DialContext(ctx, network, net.JoinHostPort(a.Unmap().String(), port)); err == nil {
			break
		}
	}
	return conn, err
}

// replaceTransport switches to a new transport. The connections of the old one are
// closed as soon as they are idle.
func (p *Pool) replaceTransport() {
	(*p.currentTransport.Swap(new(p.newTransport()))).CloseIdleConnections()
}

// hostnames returns the hosts of the targets that are names, not addresses.
func (p *Pool) hostnames() (hosts []string) {
	for _, m := range p.backends {
		host, _, _ := net.SplitHostPort(m.dialAddress()) // it always has a port
		_, err := netip.ParseAddr(host)
		if err != nil && m.socket == "" && m.host != echoHost && !slices.Contains(hosts, host) {
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

// A Request is a request to be forwarded, with the parameters that the proxy has
// determined for it.
type Request struct {
	Method string
	// Path is the escaped path to be sent. It begins with exactly one slash, or is "*"
	// for OPTIONS.
	Path string
	// RawQuery is the query as received. ForceQuery reports that the target has a
	// question mark even if RawQuery is empty.
	RawQuery   string
	ForceQuery bool
	// Host is the authority of the client's request. It is forwarded unless SetHost
	// replaces it.
	Host, SetHost string
	// Fields are the fields of the client's request. Forward drops those that are not
	// forwarded.
	Fields *http1.Fields
	// Length is the announced length of the body: 0 for none, -1 for unknown. Body is
	// nil if there is none. BufferedBody, if it is not nil, is the whole body, which
	// was read before.
	Length       int64
	Body         Body
	BufferedBody []byte
	// Proto is the version of the client's request ("HTTP/1.1"), Scheme "http" or
	// "https".
	Proto, Scheme string
	// Client is the address of the client behind trusted proxies; Peer is the remote
	// address of the connection. If TrustedPeer is set, the forwarded fields that the
	// peer has sent are kept.
	Client      netip.Addr
	Peer        netip.AddrPort
	TrustedPeer bool
	// Start is the time when forwarding starts. If it is zero, Forward reads the clock.
	Start time.Time
	// RequestID is sent as X-Request-Id, unless it is empty.
	RequestID string
	// WebSocket allows an upgrade to WebSocket, to HTTP/1.1. The messages after that are
	// not inspected.
	WebSocket bool
	// Forwarded adds the field Forwarded (RFC 7239) to X-Forwarded-*.
	Forwarded bool
	// Stripe is the stripe of the processor, in which the request is counted as in progress; see
	// NewGroups.
	Stripe int
	// HashBy is the value by which a pool with the balance HashBy selects a target; ""
	// for none.
	HashBy string
	// Set replaces request fields. A field without values is removed. Names are in
	// canonical form. It is not modified.
	Set map[string][]string
	// Reserved, if it is set, reports whether a decision was based on a field with this
	// name, or the operator sets it, or some servers confuse the name with such a one.
	// A trailer field with such a name is dropped, because some frameworks merge
	// trailer fields into the header.
	Reserved func(name string) bool
	// OnHeader, if it is set, is called once with the status and the header of the
	// final response, before it is sent. It may modify the fields. The hop-by-hop
	// fields have been dropped.
	OnHeader func(status int, h *http1.Fields)
	// OnBody, if OnHeader sets it, is called with each part of the body of the response before
	// it is sent. The part is valid until OnBody returns, and must not be changed.
	OnBody func(part []byte)

	forwarding *forwarding // the state of Forward; kept by Reset
}

// Reset clears r for the next request. It keeps the memory that Forward uses.
func (r *Request) Reset() { *r = Request{forwarding: r.forwarding} }

// expectsContinue reports whether the client waits for 100 Continue before it sends the body.
func (r *Request) expectsContinue() bool {
	return r.BufferedBody == nil && r.Proto != "HTTP/1.0" && r.Length != 0 && r.Fields.Has(http1.Expect)
}

// A ResultKind is the outcome of forwarding a request.
type ResultKind uint8

// The possible outcomes.
const (
	OK                ResultKind = iota // the whole response was forwarded
	ConnectFailed                       // no connection to a target; nothing was sent
	ConnectTimeout                      // no connection to a target within the timeout; nothing was sent
	Timeout                             // the target did not accept the request or begin the response in time
	ClientGone                          // the client was gone before the response was complete
	BadRequest                          // the request or its body is invalid; respond with 400
	BodyTimeout                         // the client did not send its body in time; respond with 408
	BodyTooLarge                        // the client's body exceeds its limit; respond with 413
	BadResponse                         // the response is invalid or was not requested
	ConnectionReset                     // the target closed the connection before it responded
	ResponseTruncated                   // the response was truncated after its head; this must be visible to the client
	NoTarget                            // no target is healthy
	MaxForwards                         // Max-Forwards is 0: the caller must respond to OPTIONS or TRACE itself
	LoopDetected                        // the request has passed through this process before
	QueueFull                           // all targets are at MaxConnections, and the queue is full or the wait too long
)

// IsByClient reports whether the client is the cause: it was gone, or its request or body failed.
func (k ResultKind) IsByClient() bool { return k >= ClientGone && k <= BodyTooLarge }

// A Result is the outcome of Forward.
type Result struct {
	Kind ResultKind
	// Status is the status of the upstream's response, or 0.
	Status int
	// Err is the error for the log. It is nil only if Kind is OK.
	Err error
	// HeaderSent reports that the head of the response was sent to the client. If Kind
	// is not OK, the caller must then abort the connection or stream; otherwise it must
	// send a response.
	HeaderSent bool
	// Sent reports that a target may have received a part of the request. It is set only
	// if no response has arrived.
	Sent bool
	// Target is the URL of the last selected target, or "".
	Target string
	// Retries is the number of targets that were tried before that one.
	Retries int
	// FirstByte is the time until the head of the final response.
	FirstByte time.Duration
}

// A Sink receives the response to one request and sends it to the client.
// [http1.Duplex] is a Sink. Only one goroutine uses it at a time.
type Sink interface {
	http1.Receiver
	// Informational forwards a 1xx response other than 100 and 101. It is called only
	// before Begin.
	Informational(status int, f *http1.Fields)
	// SwitchProtocols sends 101 with these fields and hands over the client connection.
	// unread holds bytes that the client has sent after its request.
	SwitchProtocols(protocol string, f *http1.Fields) (c net.Conn, unread []byte, err error)
	// Committed reports whether a part of the final response may have been sent.
	Committed() bool
}

// A Body is a request body. It ends with io.EOF.
type Body interface {
	Read(p []byte) (int, error)
	// Stop makes a pending read return, because the rest of the body is not needed. It
	// is called by another goroutine than the one that reads.
	Stop()
	// Trailer returns the trailer fields, which are available at the end of the body.
	Trailer() *http1.Fields
}
