package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/grpclimit"
)

func memory() *limiter.Memory { return limiter.NewMemory(limiter.MemoryOptions{}) }

// A service answers unary calls and streams with the error it has.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	err   error
	panic bool
	calls int
}

func (s *service) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.calls++
	if s.panic {
		panic("a bug")
	}
	return &grpc_health_v1.HealthCheckResponse{}, s.err
}

func (s *service) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	s.calls++
	for range 3 {
		if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
			return err
		}
	}
	return s.err
}

// newLimiter returns a limiter of rules that count in store.
func newLimiter(t *testing.T, store limiter.Store, o grpclimit.Options, rules ...grpclimit.Rule) *grpclimit.Limiter {
	t.Helper()
	l, err := grpclimit.New(store, o, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start serves s behind l, and returns a client of it.
func start(t *testing.T, s *service, l *grpclimit.Limiter) grpc_health_v1.HealthClient {
	t.Helper()
	rescued := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = status.Error(codes.Internal, "panic")
			}
		}()
		return handler(ctx, request)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(rescued, l.Unary), grpc.StreamInterceptor(l.Stream))
	grpc_health_v1.RegisterHealthServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	c, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return grpc_health_v1.NewHealthClient(c)
}

func as(t *testing.T, tenants ...string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	for _, name := range tenants {
		ctx = metadata.AppendToOutgoingContext(ctx, "tenant", name)
	}
	return ctx
}

func check(t *testing.T, c grpc_health_v1.HealthClient, want codes.Code, tenants ...string) *status.Status {
	t.Helper()
	_, err := c.Check(as(t, tenants...), &grpc_health_v1.HealthCheckRequest{})
	if got := status.Code(err); got != want {
		t.Errorf("%v; want %v", err, want)
	}
	return status.Convert(err)
}

func byTenant(rates ...string) grpclimit.Rule {
	return grpclimit.Rule{Name: "tenant", Rates: rates, Key: grpclimit.Metadata("tenant")}
}

func TestUnary_ARefusalSaysWhenToRetry(t *testing.T) {
	c := start(t, &service{}, newLimiter(t, memory(), grpclimit.Options{}, byTenant("1/1m", "5/1h"),
		grpclimit.Rule{Name: "secret", Rates: []string{"1/1m"}, Key: grpclimit.PeerIP, Hidden: true}))
	check(t, c, codes.OK, "acme")
	s := check(t, c, codes.ResourceExhausted, "acme")
	var retry *errdetails.RetryInfo
	var quota *errdetails.QuotaFailure
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		}
	}
	if wait := retry.GetRetryDelay().AsDuration(); wait <= 58*time.Second || wait > 67*time.Second {
		t.Errorf("retry after %v; want a minute, and up to a tenth more", wait)
	}
	if v := quota.GetViolations(); len(v) != 1 || v[0].Subject != "tenant-1m" || v[0].Description != "1/1m" {
		t.Errorf("violations %v; want that of tenant-1m alone", v)
	}
}

func TestUnary_KeysOfCalls(t *testing.T) {
	c := start(t, &service{}, newLimiter(t, memory(), grpclimit.Options{}, byTenant("1/1m"), grpclimit.Rule{
		Name: "other", Rates: []string{"1/1h"}, Key: func(_ context.Context, c *grpclimit.Call) (string, error) {
			if !strings.HasSuffix(c.Method, "/Other") {
				return "", grpclimit.ErrSkip
			}
			return c.Method, nil
		},
	}))
	check(t, c, codes.InvalidArgument)
	check(t, c, codes.InvalidArgument, "acme", "other")
	check(t, c, codes.OK, "acme")
	check(t, c, codes.OK, "other")
	check(t, c, codes.ResourceExhausted, "acme")
}

// A call that failed is counted as its code says; its client knows nothing earlier.
func TestUnary_RefundsByTheCode(t *testing.T) {
	o := grpclimit.Options{Refund: func(c codes.Code) bool { return c == codes.Internal }}
	s := &service{err: status.Error(codes.Internal, "")}
	c := start(t, s, newLimiter(t, memory(), o, byTenant("1/1h")))
	check(t, c, codes.Internal, "acme")
	s.panic = true
	check(t, c, codes.Internal, "acme")
	s.panic, s.err = false, status.Error(codes.NotFound, "")
	check(t, c, codes.NotFound, "acme")
	check(t, c, codes.ResourceExhausted, "acme")
}

// A client could otherwise end the call as soon as its work is done, and get the permit back for the error that this causes.
func TestUnary_WhoEndsTheCallKeepsThePermitTaken(t *testing.T) {
	passed := 0
	l := newLimiter(t, memory(), grpclimit.Options{Refund: func(c codes.Code) bool { return c == codes.Internal }},
		grpclimit.Rule{Name: "method", Rates: []string{"1/1h"}, Key: func(_ context.Context, c *grpclimit.Call) (string, error) { return c.Method, nil }})
	for range 2 {
		ctx, end := context.WithCancel(t.Context())
		_, _ = l.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) {
			passed++
			end()
			return nil, status.Error(codes.Internal, "")
		})
		end()
	}
	if passed != 1 {
		t.Errorf("%d calls passed; want 1", passed)
	}
}

// A stream is one call, whatever the number of its messages.
func TestStream_IsOneCall(t *testing.T) {
	s := &service{}
	c := start(t, s, newLimiter(t, memory(), grpclimit.Options{}, byTenant("1/1h")))
	watch := func() (messages int, err error) {
		stream, err := c.Watch(as(t, "acme"), &grpc_health_v1.HealthCheckRequest{})
		for err == nil {
			if _, err = stream.Recv(); err == nil {
				messages++
			}
		}
		return messages, err
	}
	if n, err := watch(); n != 3 || err.Error() != "EOF" {
		t.Errorf("%d messages, %v; want 3", n, err)
	}
	if n, err := watch(); n != 0 || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%d messages, %v; want a refusal", n, err)
	}
	if s.calls != 1 {
		t.Errorf("%d calls reached the service; want 1", s.calls)
	}
}

// A broken store is an unavailable one.
type broken struct{ limiter.Store }

func (broken) Take(context.Context, []limiter.Claim, *limiter.Decision) error {
	return limiter.ErrUnavailable
}

func TestUnary_StoreUnavailable(t *testing.T) {
	check(t, start(t, &service{}, newLimiter(t, broken{}, grpclimit.Options{}, byTenant("1/1h"))), codes.Unavailable, "acme")
	check(t, start(t, &service{}, newLimiter(t, broken{}, grpclimit.Options{AllowOnFailure: true}, byTenant("1/1h"))), codes.OK, "acme")
}

// A slow store answers when a call has ended.
type slow struct{ limiter.Store }

func (slow) Take(ctx context.Context, _ []limiter.Claim, _ *limiter.Decision) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", limiter.ErrUnavailable, ctx.Err())
}

// Otherwise a short deadline would be a way around all limits.
func TestUnary_WhoEndsTheCallDoesNotPass(t *testing.T) {
	l := newLimiter(t, slow{}, grpclimit.Options{AllowOnFailure: true}, grpclimit.Rule{Name: "peer", Rates: []string{"1/1h"},
		Key: func(context.Context, *grpclimit.Call) (string, error) { return "a", nil }})
	for want, end := range map[codes.Code]func(context.Context) (context.Context, context.CancelFunc){
		codes.Canceled:         context.WithCancel,
		codes.DeadlineExceeded: func(c context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(c, 0) },
	} {
		ctx, cancel := end(t.Context())
		cancel()
		_, err := l.Unary(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			t.Error("an uncounted call has passed")
			return nil, nil
		})
		if status.Code(err) != want {
			t.Errorf("%v; want %v", err, want)
		}
	}
}

func TestNew_NamesWhatIsNotValid(t *testing.T) {
	if _, err := grpclimit.New(memory(), grpclimit.Options{}, byTenant("1/minute")); !errors.Is(err, grpclimit.ErrInvalid) {
		t.Errorf("New: %v; want ErrInvalid", err)
	}
}

func TestPeerIP(t *testing.T) {
	for _, c := range []struct {
		addr net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}, "192.0.2.7"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2::7"), Port: 1}, "2001:db8:1:2::/64"},
		{&net.TCPAddr{IP: net.ParseIP("64:ff9b::192.0.2.7"), Port: 1}, "192.0.2.7"}, // behind NAT64
		{&net.UnixAddr{Name: "@"}, ""},
	} {
		got, err := grpclimit.PeerIP(peer.NewContext(t.Context(), &peer.Peer{Addr: c.addr}), nil)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("PeerIP of %v = %q, %v; want %q", c.addr, got, err, c.want)
		}
	}
	if got, err := grpclimit.PeerIP(t.Context(), nil); !errors.Is(err, grpclimit.ErrMissing) {
		t.Errorf("PeerIP without a peer = %q, %v", got, err)
	}
}

// A hundred calls a minute to each tenant.
func Example() {
	limit, err := grpclimit.New(limiter.NewMemory(limiter.MemoryOptions{}), grpclimit.Options{},
		grpclimit.Rule{Name: "tenant", Rates: []string{"100/1m"}, Key: grpclimit.Metadata("tenant")})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	server.Stop()
	// Output:
}
