package frontend

import (
	"context"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// challengePrefix is where an authority that issues certificates asks whether a name is
// ours (ACME, RFC 8555 section 8.3).
const challengePrefix = "/.well-known/acme-challenge/"

// A ChallengeHandler answers what an authority asks.
type ChallengeHandler interface {
	// ServeChallenge reports whether r was such a question and has been answered.
	ServeChallenge(w http.ResponseWriter, r *http.Request) bool
}

// WithChallenges is next, but for an authority's questions, which c answers.
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
