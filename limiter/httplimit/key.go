package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weir-proxy/weir/limiter/internal/rules"
)

// Errors of New and of keys.
var (
	// ErrInvalid reports that a rule is not valid.
	ErrInvalid = rules.ErrInvalid
	// ErrSkip is returned by a Key for a request that the rule does not apply to.
	ErrSkip = rules.ErrSkip
	// ErrMissing is returned by a Key for a request that has none.
	ErrMissing = rules.ErrMissing
)

// Header returns a Key that reads a header field. A request without it is answered with 400,
// and so is one with several, of which servers read different ones.
func Header(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		values := r.Header.Values(name)
		if len(values) > 1 {
			return "", fmt.Errorf("%d fields %s", len(values), name)
		}
		if len(values) == 0 || strings.TrimSpace(values[0]) == "" {
			return "", fmt.Errorf("%w: %s", ErrMissing, name)
		}
		return strings.TrimSpace(values[0]), nil
	}
}

// RemoteIP is a Key: the address of the connection's other end, for IPv6 its /64 network,
// which is what one subscriber has. Behind a proxy that is the proxy.
func RemoteIP(r *http.Request) (string, error) {
	end, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", fmt.Errorf("remote address %q: %w", r.RemoteAddr, err)
	}
	return rules.Subscriber(end.Addr()), nil
}
