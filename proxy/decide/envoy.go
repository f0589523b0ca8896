package decide

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/respond"
)

const (
	envoyService = "envoy.service.ratelimit.v3.RateLimitService"
	envoyMethod  = "/" + envoyService + "/ShouldRateLimit"
	maxCall      = 1 << 20 // bytes of a request
	// The entries of a descriptor that reports the outcome of a request.
	handleEntry = "weir_handle"
	statusEntry = "status"
)

// A rateLimitService is Envoy's rate limit service.
type rateLimitService interface {
	shouldRateLimit(ctx context.Context, r *rateLimitRequest) (*rateLimitResponse, error)
}

// An EnvoyServer serves Envoy's rate limit service, and the health service of gRPC.
type EnvoyServer struct{ server *grpc.Server }

// NewEnvoyServer returns an EnvoyServer; secure is nil for one without TLS.
func (h *Handler) NewEnvoyServer(secure *tls.Config, log zerolog.Logger) *EnvoyServer {
	options := []grpc.ServerOption{grpc.ForceServerCodec(codec{}), grpc.MaxRecvMsgSize(maxCall), grpc.UnaryInterceptor(recoverer{log}.intercept)}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := grpc.NewServer(options...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: envoyService,
		HandlerType: (*rateLimitService)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: serveEnvoy}},
	}, h)
	alive := health.NewServer()
	alive.SetServingStatus(envoyService, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(s, alive)
	return &EnvoyServer{s}
}

// Serve serves connections from l until Drain. It closes l.
func (e *EnvoyServer) Serve(l net.Listener) error { return e.server.Serve(l) }

// Drain accepts no further calls and waits for those in progress, until ctx is done.
func (e *EnvoyServer) Drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, e.server.Stop)
	e.server.GracefulStop()
	stop()
}

// serveEnvoy calls the service for one request.
func serveEnvoy(s any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	r := new(rateLimitRequest)
	if err := decode(r); err != nil {
		return nil, err
	}
	return intercept(ctx, r, &grpc.UnaryServerInfo{Server: s, FullMethod: envoyMethod}, func(ctx context.Context, r any) (any, error) {
		return s.(rateLimitService).shouldRateLimit(ctx, r.(*rateLimitRequest))
	})
}

// A recoverer ends a call that panics, and not the process.
type recoverer struct{ log zerolog.Logger }

func (r recoverer) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if v := recover(); v != nil {
			r.log.Error().Interface("error", v).Bytes("stack", debug.Stack()).Msg("panic in a request")
			err = status.Error(codes.Internal, "an error in Weir; its log has more")
		}
	}()
	return handle(ctx, request)
}

// shouldRateLimit implements rateLimitService.
func (h *Handler) shouldRateLimit(ctx context.Context, r *rateLimitRequest) (*rateLimitResponse, error) {
	began := time.Now()
	count := func(result string) { h.requests.WithLabelValues("envoy", result).Inc() }
	switch {
	case !h.trustsCall(ctx):
		count("untrusted")
		return nil, status.Error(codes.PermissionDenied, "this peer may not ask; see listen.decide.trusted, token and client_ca")
	case r.domain == "" || len(r.descriptors) == 0:
		count("invalid")
		return nil, status.Error(codes.InvalidArgument, "a domain and at least one descriptor are needed")
	}
	q := &proxy.DescriptorQuestion{
		Listener: proxy.EnvoyListener, Domain: r.domain, Method: "POST", Path: envoyMethod,
		Deadline: began.Add(h.config.Within), Hold: h.config.WithinOutcome,
	}
	if due, ok := ctx.Deadline(); ok && due.Before(q.Deadline) {
		q.Deadline = due
	}
	statuses := make([]descriptorStatus, len(r.descriptors))
	var asked []int // the index of each descriptor that is asked about
	for i, d := range r.descriptors {
		statuses[i].code = codeOK
		if d.negative || d.entries.Value(handleEntry) != "" {
			h.outcomes.WithLabelValues(h.settleDescriptor(ctx, &r.descriptors[i])).Inc()
			continue
		}
		q.Descriptors, q.Hits = append(q.Descriptors, d.entries), append(q.Hits, int64(max(1, min(costOf(d, r), maxHits))))
		asked = append(asked, i)
	}
	answer := &rateLimitResponse{overall: codeOK, statuses: statuses}
	if len(asked) == 0 {
		return answer, nil
	}
	h.proxy.DecideDescriptors(ctx, q, func(a *proxy.DescriptorAnswer) {
		for i, s := range a.Statuses {
			statuses[asked[i]] = newDescriptorStatus(s)
		}
		answer.metadata = metadataOf(a)
		answer.toClient = fieldsOf(a.Response.Fields)
		if a.Allowed {
			count("allowed")
			answer.upstream = slices.Clone(a.Upstream)
			if len(a.Pendings) > 0 {
				answer.upstream = append(answer.upstream, respond.Field{Name: handleField, Value: h.signer.sign(a.Pendings, began.Add(h.config.WithinOutcome))})
			}
			return
		}
		count("refused")
		answer.overall, answer.body = codeOverLimit, slices.Clone(a.Response.Body)
	})
	return answer, nil
}

// maxHits bounds the cost of a call, so that sums do not overflow.
const maxHits = 1 << 31

// costOf returns the cost of a descriptor: its own, or that of the call.
func costOf(d limitDescriptor, r *rateLimitRequest) uint64 {
	if d.hits > 0 {
		return d.hits
	}
	return r.hits
}

// trustsCall reports whether the peer of a call may ask; see trusts.
func (h *Handler) trustsCall(ctx context.Context) bool {
	c := &h.config
	md, _ := metadata.FromIncomingContext(ctx)
	if token := md.Get(tokenField); c.Token != "" && (len(token) != 1 || subtle.ConstantTimeCompare([]byte(token[0]), []byte(c.Token)) != 1) {
		return false
	}
	var addr netip.Addr
	if p, ok := peer.FromContext(ctx); ok {
		if tcp, ok := p.Addr.(*net.TCPAddr); ok {
			addr = tcp.AddrPort().Addr().Unmap().WithZone("")
		}
	}
	return h.trustsAddress(addr)
}

// settleDescriptor acts on a descriptor that reports an outcome, and returns the result for the metrics.
// Negative hits without a status refund what the handle is of, however many they are. Without a handle
// nobody knows whose permits are meant, so nothing is refunded.
func (h *Handler) settleDescriptor(ctx context.Context, d *limitDescriptor) string {
	r := report{Handle: d.entries.Value(handleEntry)}
	text, hasStatus := d.entries.Find(statusEntry)
	if hasStatus {
		r.Status, _ = strconv.Atoi(text)
	}
	r.refund = d.negative && !hasStatus
	if r.Handle == "" || !r.refund && !isStatus(r.Status) {
		return "invalid"
	}
	return resultOf(h.settle(ctx, r))
}

func newDescriptorStatus(s proxy.DescriptorStatus) descriptorStatus {
	made := descriptorStatus{code: codeOK, name: s.Limit, rate: s.Rate, remaining: uint64(max(0, s.Remaining)), reset: s.Reset}
	if s.Refused {
		made.code = codeOverLimit
	}
	return made
}

// fieldsOf returns the fields of a response that Envoy adds to its own. Envoy sets the length.
func fieldsOf(all []respond.Field) (fields []respond.Field) {
	for _, f := range all {
		if f.Name != "Content-Length" {
			fields = append(fields, respond.Field{Name: f.Name, Value: fmt.Sprint(f.Value)})
		}
	}
	return fields
}

// metadataOf returns what Envoy's access log and other filters can read: decision, limit, remaining
// and shadow, of the descriptor with the fewest permits.
func metadataOf(a *proxy.DescriptorAnswer) []byte {
	decision := "allowed"
	if !a.Allowed {
		decision = "refused"
	}
	b := appendStructText(nil, "decision", decision)
	var least *proxy.DescriptorStatus
	for i := range a.Statuses {
		s := &a.Statuses[i]
		if s.Limit != "" && (least == nil || s.Remaining < least.Remaining) {
			least = s
		}
	}
	if least != nil {
		b = appendStructNumber(appendStructText(b, "limit", least.Limit), "remaining", float64(least.Remaining))
	}
	if slices.ContainsFunc(a.Statuses, func(s proxy.DescriptorStatus) bool { return s.Shadow }) {
		b = appendStructTrue(b, "shadow")
	}
	return b
}
