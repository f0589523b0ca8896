package frontend

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
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

// BeginHTTP2 implements Handler.
func (h challengeHandler) BeginHTTP2(s *http2.Stream) bool {
	if !s.Secure() && strings.HasPrefix(s.Path, challengePrefix) && h.serveHTTP2(s) {
		return false
	}
	return h.Handler.BeginHTTP2(s)
}

// serveHTTP2 reports whether the request was a challenge. If so, it has responded.
func (h challengeHandler) serveHTTP2(s *http2.Stream) bool {
	path, _, _ := strings.Cut(s.Path, "?")
	w := &answerRecorder{header: http.Header{}, status: http.StatusOK}
	r := &http.Request{Method: s.Method, Host: s.Authority, URL: &url.URL{Path: path}, Body: http.NoBody, Header: http.Header{}}
	if !h.challenger.ServeChallenge(w, r) {
		return false
	}
	s.Start(w.status)
	for name, values := range w.header {
		for _, value := range values {
			s.Add(name, value)
		}
	}
	_ = s.Send(w.body.Bytes()) // fails if the client is gone
	return true
}

// An answerRecorder records an answer to a challenge.
type answerRecorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answerRecorder) Header() http.Header         { return a.header }
func (a *answerRecorder) WriteHeader(status int)      { a.status = status }
func (a *answerRecorder) Write(p []byte) (int, error) { return a.body.Write(p) }
