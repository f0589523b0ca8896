package frontend

import (
	"context"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// challengePrefix is the path below which a certification authority requests the proof
// that this server controls a name (ACME HTTP-01 challenge, RFC 8555 section 8.3).
const challengePrefix = "/.well-known/acme-challenge/"

// A ChallengeHandler responds to ACME challenges.
type ChallengeHandler interface {
	// ServeChallenge reports whether r was a challenge. If so, it has responded.
	ServeChallenge(w http.ResponseWriter, r *http.Request) bool
}

// WithChallenges returns a Handler that passes ACME challenges to c and all other
// requests to next.
func WithChallenges(next Handler, c ChallengeHandler) Handler { return challengeHandler{next, c} }

type challengeHandler struct {
	Handler
	challenger ChallengeHandler
}

// ServeHTTP implements http.Handler.
func (h challengeHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.challenger.ServeChallenge(w, r) {
		h.Handler.ServeHTTP(w, r)
	}
}

// ServeHTTP1 implements Handler.
func (h challengeHandler) ServeHTTP1(x *http1.Exchange) {
	if strings.HasPrefix(x.Path(), challengePrefix) {
		x.ServeNetHTTP(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.challenger.ServeChallenge(w, r) }))
		if x.Committed() {
			return
		}
	}
	h.Handler.ServeHTTP1(x)
}
