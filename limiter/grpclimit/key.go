package grpclimit

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-proxy/weir/limiter/internal/rules"
)

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
