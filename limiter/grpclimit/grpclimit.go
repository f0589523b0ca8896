// Package grpclimit limits the calls of gRPC servers with the limits of package limiter:
//
//	limit, err := grpclimit.New(store, grpclimit.Options{},
//		grpclimit.Rule{Name: "tenant", Rates: []string{"100/1m"}, Key: grpclimit.Metadata("tenant")})
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A call passes all rules or counts under none. A refused one ends with the code
// RESOURCE_EXHAUSTED and two details: a RetryInfo with the time until it would pass, and a
// QuotaFailure that names the rules. A stream is one call: its messages are not counted.
// With a Redis store all processes count together.
package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/internal/rules"
	"github.com/weir-proxy/weir/proxy/respond"
)

// A Rule limits calls by a key.
type Rule struct {
	// Name is unique and matches [A-Za-z][A-Za-z0-9_.-]*. It names the counts in the store
	// and the subject of a QuotaFailure.
	Name string
	// Rates are one or more rates with different windows, such as "5/1h"; see
	// limiter.ParseRate. All hold at the same time.
	Rates []string
	// Key returns what the call is counted by; see Metadata and PeerIP. It returns ErrSkip if
	// the rule does not apply to the call. All other errors end it with INVALID_ARGUMENT.
	Key func(context.Context, *Call) (string, error)
	// Algorithm is TokenBucket by default. Concurrent, Distinct and Cooldown are not valid here.
	Algorithm limiter.Algorithm
	// Burst is the number of permits that may be taken at once. Only GCRA uses it.
	Burst int64
	// Hidden keeps the rule out of QuotaFailure; only RetryInfo takes it into account.
	Hidden bool
}

// Options are options of a Limiter. The zero value is valid.
type Options struct {
	// Refund reports whether a call that ends with this code returns its permits, which
	// happens before its client sees the end. Nil returns none. A handler that panics counts
	// as codes.Internal. If the client has ended the call, or its deadline is over, the permits
	// stay taken, because its work may have been done.
	Refund func(codes.Code) bool
	// AllowOnFailure lets calls pass uncounted while the store is unavailable. Otherwise
	// they end with UNAVAILABLE. A call that its client ends before the decision never passes.
	AllowOnFailure bool
	// Timeout bounds a decision and a refund; 0 means one second.
	Timeout time.Duration
}

// A Limiter has the interceptors of a server. It is safe for concurrent use.
type Limiter struct {
	rules    *rules.Set[*Call]
	policies []rules.Policy
	options  Options
}

// New returns a Limiter of rules that count in store. Errors name the rule that is not valid,
// and wrap ErrInvalid.
func New(store limiter.Store, o Options, all ...Rule) (*Limiter, error) {
	converted := make([]rules.Rule[*Call], len(all))
	for i, r := range all {
		converted[i] = rules.Rule[*Call](r)
	}
	set, err := rules.New(store, cmp.Or(o.Timeout, time.Second), converted...)
	if err != nil {
		return nil, err
	}
	return &Limiter{rules: set, policies: set.Policies(), options: o}, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limiter) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (response any, err error) {
	err = l.serve(ctx, &Call{Method: info.FullMethod, Request: request}, func() error {
		var err error
		response, err = handler(ctx, request)
		return err
	})
	return response, err
}

// Stream is a grpc.StreamServerInterceptor.
func (l *Limiter) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler) error {
	return l.serve(stream.Context(), &Call{Method: info.FullMethod}, func() error { return handler(server, stream) })
}

// serve calls handle if c is within the limits, and returns c's permits by its code.
func (l *Limiter) serve(ctx context.Context, c *Call, handle func() error) (err error) {
	a, err := l.rules.Take(ctx, c)
	switch {
	case errors.Is(err, rules.ErrKey):
		return status.Error(codes.InvalidArgument, "a key that the call is counted by is missing or not valid")
	case err != nil && ctx.Err() != nil: // by its client, who must not choose that it is not counted
		return status.FromContextError(ctx.Err()).Err()
	case err != nil && l.options.AllowOnFailure:
		return handle()
	case err != nil:
		return withDetails(codes.Unavailable, "the limits cannot be evaluated",
			&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	case !a.Allowed:
		return l.refusal(a)
	}
	code := codes.Internal // of a panic
	defer func() {
		if l.options.Refund != nil && l.options.Refund(code) {
			_ = l.rules.Refund(ctx, a) // else the permits stay taken
		}
	}()
	err = handle()
	code = status.Code(err)
	return err
}

// refusal returns the status of a refused call.
func (l *Limiter) refusal(a *rules.Admission) error {
	wait := a.Wait + respond.Jitter(a.Wait, rand.Float64)
	quota := &errdetails.QuotaFailure{}
	for i := range a.Outcomes {
		if p := l.policies[a.Policies[i]]; !a.Outcomes[i].Allowed && !p.Hidden {
			quota.Violations = append(quota.Violations,
				&errdetails.QuotaFailure_Violation{Subject: p.Name, Description: p.Limit.Rate.String()})
		}
	}
	details := []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}}
	if len(quota.Violations) > 0 {
		details = append(details, quota)
	}
	return withDetails(codes.ResourceExhausted,
		fmt.Sprintf("too many calls; try again in %d s", int64((wait+time.Second-1)/time.Second)), details...)
}

// withDetails returns the error of a status with details.
func withDetails(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s := status.New(code, message)
	if full, err := s.WithDetails(details...); err == nil {
		s = full
	}
	return s.Err()
}

// Errors of New and of keys.
var (
	// ErrInvalid reports that a rule is not valid.
	ErrInvalid = rules.ErrInvalid
	// ErrSkip is returned by a Key for a call that the rule does not apply to.
	ErrSkip = rules.ErrSkip
	// ErrMissing is returned by a Key for a call that has none.
	ErrMissing = rules.ErrMissing
)

// A Call is what a Key may read, beside the call's context.
type Call struct {
	Method  string // "/package.Service/Method"
	Request any    // the message of a unary call; nil for streams, whose messages come later
}

// Metadata returns a Key that reads a field of the call's metadata. A call without it, or with
// several, ends with INVALID_ARGUMENT.
func Metadata(name string) func(context.Context, *Call) (string, error) {
	return func(ctx context.Context, _ *Call) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) > 1 {
			return "", fmt.Errorf("%d fields %s", len(values), name)
		}
		if len(values) == 0 || values[0] == "" {
			return "", fmt.Errorf("%w: %s", ErrMissing, name)
		}
		return values[0], nil
	}
}

// PeerIP is a Key: the address of the connection's other end, for IPv6 its /64 network, which
// is what one subscriber has. Behind a proxy that is the proxy.
func PeerIP(ctx context.Context, _ *Call) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", fmt.Errorf("%w: peer", ErrMissing)
	}
	end, ok := p.Addr.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("peer %v is not a TCP address", p.Addr)
	}
	return rules.Subscriber(end.AddrPort().Addr()), nil
}
