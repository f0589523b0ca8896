package decide

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/internal/socket"
)

const (
	envoyService = "envoy.service.ratelimit.v3.RateLimitService"
	envoyMethod  = "/" + envoyService + "/ShouldRateLimit"
	maxCall      = 1 << 20 // bytes of a request
	// bytes that a peer may send of a call before they are read; one that never changes costs no pings
	callWindow = 1 << 16
	// callWorkers is the number of calls at once for which there are goroutines whose stacks have grown already.
	// Growing one is an eighth of a call.
	callWorkers = 64
	// The entries of a descriptor that reports the outcome of a request.
	handleEntry = "weir_handle"
	statusEntry = "status"
)

// An EnvoyServer serves Envoy's rate limit service, and the health service of gRPC.
type EnvoyServer struct {
	server *grpc.Server
	health watched
}

// A watched is the health service, whose watches end with drained.
type watched struct {
	*health.Server
	drained context.Context
	drain   context.CancelFunc
}

// Watch implements grpc_health_v1.HealthServer.
func (w watched) Watch(r *grpc_health_v1.HealthCheckRequest, s grpc_health_v1.Health_WatchServer) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	defer context.AfterFunc(w.drained, cancel)()
	return w.Server.Watch(r, watch{s, ctx})
}

// A watch is a call of Watch with a context of its own.
type watch struct {
	grpc_health_v1.Health_WatchServer
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (w watch) Context() context.Context { return w.ctx }

// NewEnvoyServer returns an EnvoyServer; secure is nil for one without TLS.
func (h *Handler) NewEnvoyServer(secure *tls.Config, log zerolog.Logger) *EnvoyServer {
	by := insecure.NewCredentials()
	if secure != nil {
		by = credentials.NewTLS(secure)
	}
	s := grpc.NewServer(
		grpc.Creds(followed{by}),
		grpc.ForceServerCodec(codec{}), grpc.MaxRecvMsgSize(maxCall),
		grpc.NumStreamWorkers(callWorkers), grpc.StaticStreamWindowSize(callWindow), grpc.StaticConnWindowSize(maxCall),
	)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: envoyService,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: h.serveEnvoy(log)}},
	}, h)
	drained, drain := context.WithCancel(context.Background())
	alive := watched{health.NewServer(), drained, drain}
	alive.SetServingStatus(envoyService, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(s, alive)
	return &EnvoyServer{s, alive}
}

// Serve serves connections from l until Drain. It closes l.
func (e *EnvoyServer) Serve(l net.Listener) error { return e.server.Serve(l) }

// AnnounceClose makes the health service answer that nothing is served any more, before Drain.
func (e *EnvoyServer) AnnounceClose() { e.health.Shutdown() }

// Drain accepts no further calls and waits for those in progress, until ctx is done. Watches of the health end at once.
func (e *EnvoyServer) Drain(ctx context.Context) {
	e.health.drain()
	stop := context.AfterFunc(ctx, e.server.Stop)
	e.server.GracefulStop()
	stop()
}

// followed are credentials whose connections say how far they were read.
type followed struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials. The connection is what a call knows of it.
func (f followed) ServerHandshake(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &followedConn{Conn: nc, socket: socket.New(nc)}
	secured, _, err := f.TransportCredentials.ServerHandshake(c)
	return secured, c, err
}

// A followedConn knows how far gRPC has acted upon what a peer has sent. gRPC begins a call before it reads what
// follows: what a peer has given up meanwhile, for example while this process stood still, is known once that is read.
type followedConn struct {
	net.Conn
	socket socket.Conn
	mu     sync.Mutex
	read   int           // bytes
	acted  int           // of those: what was read before Read was called once more
	again  chan struct{} // closed by the next call of Read; nil if nobody waits for it
	empty  time.Time     // when nothing was left to be read
}

// AuthType implements credentials.AuthInfo.
func (c *followedConn) AuthType() string { return "followed" }

// Read implements net.Conn. Where a socket can be polled, no byte is read that is not counted at once.
func (c *followedConn) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	if c.acted = c.read; c.again != nil {
		close(c.again)
		c.again = nil
	}
	c.mu.Unlock()
	if !c.socket.IsPlain {
		return c.Conn.Read(p)
	}
	failed := c.socket.Raw.Read(func(fd uintptr) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		n, err = c.socket.ReadNow(fd, p)
		if c.read += n; n < len(p) {
			c.empty = time.Now()
		}
		return err != socket.ErrWouldBlock //nolint:errorlint // it is never wrapped
	})
	if failed != nil {
		return 0, socket.TrimRaw(failed)
	}
	return n, err
}

// catchUp waits until gRPC has acted upon all that the peer has given up by now, or ctx is done, as it is when the
// connection ends. Where the socket cannot be polled it does not wait. Usually the socket need not be asked: within a
// millisecond nobody gives up.
func (c *followedConn) catchUp(ctx context.Context, now time.Time) {
	c.mu.Lock()
	sent := c.read
	if c.socket.IsPlain && now.Sub(c.empty) > nobodyGivesUp {
		sent += c.socket.Unread()
	}
	for ; c.acted < sent && ctx.Err() == nil; c.mu.Lock() {
		if c.again == nil {
			c.again = make(chan struct{})
		}
		again := c.again
		c.mu.Unlock()
		select {
		case <-again:
		case <-ctx.Done():
		}
	}
	c.mu.Unlock()
}

// serveEnvoy returns what answers one call. A call that panics ends, and not the process.
func (h *Handler) serveEnvoy(log zerolog.Logger) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (answer any, err error) {
		defer func() {
			if v := recover(); v != nil {
				log.Error().Interface("error", v).Bytes("stack", debug.Stack()).Msg("panic in a request")
				err = status.Error(codes.Internal, "an error in Weir; its log has more")
			}
		}()
		r := new(rateLimitRequest)
		if err := decode(r); err != nil {
			return nil, err
		}
		return h.shouldRateLimit(ctx, r)
	}
}

// shouldRateLimit answers a call.
func (h *Handler) shouldRateLimit(ctx context.Context, r *rateLimitRequest) (answer encoded, err error) {
	began := time.Now()
	from, _ := peer.FromContext(ctx) // gRPC has it in each
	from.AuthInfo.(*followedConn).catchUp(ctx, began)
	switch {
	case ctx.Err() != nil:
		h.countCall("gone")
		return nil, status.FromContextError(ctx.Err()).Err()
	case !h.trustsCall(ctx, from.Addr):
		h.countCall("untrusted")
		return nil, status.Error(codes.PermissionDenied,
			"this peer may not ask; see listen.decide.trusted, token and client_ca")
	case r.domain == "" || len(r.descriptors) == 0:
		h.countCall("invalid")
		return nil, status.Error(codes.InvalidArgument, "a domain and at least one descriptor are needed")
	}
	q := &proxy.DescriptorQuestion{
		Listener: proxy.EnvoyListener, Domain: r.domain, Method: "POST", Path: envoyMethod,
		Deadline: began.Add(h.config.Within), Hold: h.config.WithinOutcome,
		Descriptors: make([]proxy.AskedDescriptor, 0, len(r.descriptors)),
	}
	if due, ok := ctx.Deadline(); ok && due.Before(q.Deadline) {
		q.Deadline = due
	}
	for i := range r.descriptors {
		if d := &r.descriptors[i]; d.reports() {
			h.outcomes.WithLabelValues(h.settleDescriptor(ctx, d, r)).Inc()
		} else {
			q.Descriptors = append(q.Descriptors,
				proxy.AskedDescriptor{Descriptor: d.entries, Hits: costOf(d, r), Rate: d.limit})
		}
	}
	if len(q.Descriptors) == 0 {
		return r.answer(&proxy.DescriptorAnswer{Answer: proxy.Answer{Allowed: true}}), nil
	}
	h.proxy.DecideDescriptors(ctx, q, func(a *proxy.DescriptorAnswer) {
		if len(a.Pendings) > 0 {
			h.addHandle(&a.Answer, a.Pendings)
		}
		answer = appendMetadata(r.answer(a), a)
		if ctx.Err() != nil { // DecideDescriptors refunds what it has taken
			h.countCall("gone")
			return
		}
		h.countCall(decisionOf(&a.Answer))
	})
	return answer, nil
}

// countCall counts a call.
func (h *Handler) countCall(result string) { h.requests.WithLabelValues("envoy", result).Inc() }

// reports reports whether d reports the outcome of a request, and does not ask about one.
func (d *limitDescriptor) reports() bool { return d.negative || d.entries.Value(handleEntry) != "" }

// maxHits bounds the cost of a call, so that sums do not overflow.
const maxHits = 1 << 31

// costOf returns the cost of a descriptor: its own, which may be 0, or that of the call, where 0 means 1.
func costOf(d *limitDescriptor, r *rateLimitRequest) int64 {
	if d.hasHits {
		return int64(min(d.hits, maxHits))
	}
	return int64(max(1, min(r.hits, maxHits)))
}

// trustsCall reports whether the peer of a call may ask; see trusts.
func (h *Handler) trustsCall(ctx context.Context, from net.Addr) bool {
	var addr netip.Addr
	if tcp, ok := from.(*net.TCPAddr); ok {
		addr = tcp.AddrPort().Addr()
	}
	return h.trusts(metadata.ValueFromIncomingContext(ctx, tokenField), addr)
}

// settleDescriptor acts on a descriptor that reports an outcome, and returns the result for the metrics.
func (h *Handler) settleDescriptor(ctx context.Context, d *limitDescriptor, r *rateLimitRequest) string {
	report, ok := d.report(r)
	if !ok {
		return "invalid"
	}
	return resultOf(h.settle(ctx, report)).name
}

// report returns what d reports; false if that is nothing. Without a status its hits are what the request has cost, and
// negative ones what of it comes back; negative ones without a number are all. Without a handle nobody knows whose
// permits are meant.
func (d *limitDescriptor) report(of *rateLimitRequest) (r report, ok bool) {
	r.Handle = d.entries.Value(handleEntry)
	if text, has := d.entries.Find(statusEntry); has {
		r.Status, _ = strconv.Atoi(text)
		return r, r.Handle != "" && isStatus(r.Status)
	}
	hits, has := d.hits, d.hasHits
	if !has {
		hits, has = of.hits, of.hits > 0
	}
	n := int64(min(hits, maxHits))
	switch {
	case n == 0:
		r.refund = d.negative || has
	case d.negative:
		r.less = n
	default:
		r.cost = n
	}
	return r, r.Handle != "" && (d.negative || has)
}
