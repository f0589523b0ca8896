package frontend

import (
	"context"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// challenges is where an authority that issues certificates asks whether a name is
// ours (ACME, RFC 8555 section 8.3).
const challenges = "/.well-known/acme-challenge/"

// A Challenger answers what an authority asks.
type Challenger interface {
	// Answer reports whether r was such a question and has been answered.
	Answer(w http.ResponseWriter, r *http.Request) bool
}

// WithChallenges is next, but for an authority's questions, which c answers.
func WithChallenges(next Handler, c Challenger) Handler { return challenged{next, c} }

type challenged struct {
	Handler
	challenger Challenger
}

// ServeHTTP implements http.Handler.
func (h challenged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.challenger.Answer(w, r) {
		h.Handler.ServeHTTP(w, r)
	}
}

// ServeHTTP1 implements Handler.
func (h challenged) ServeHTTP1(x *http1.Exchange) {
	if strings.HasPrefix(x.Path(), challenges) {
		x.ServeNetHTTP(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.challenger.Answer(w, r) }))
		if x.Committed() {
			return
		}
	}
	h.Handler.ServeHTTP1(x)
}
