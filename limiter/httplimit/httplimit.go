// Package httplimit limits the requests of net/http servers, and of routers that take
// net/http middleware, with the limits of package limiter:
//
//	limit, err := httplimit.New(store, httplimit.Options{},
//		httplimit.Rule{Name: "phone", Rates: []string{"1/1m", "5/1h"}, Key: httplimit.Header("X-Phone")})
//	http.Handle("POST /send", limit.Handler(send))
//
// A request passes all rules or counts under none. A refused one is answered as the proxy
// does: 429 with Retry-After, the RateLimit and RateLimit-Policy fields
// (draft-ietf-httpapi-ratelimit-headers) and a problem document (RFC 9457). With a Redis
// store all processes count together.
//
// Package httplimit does not trust a header field that names the client's address: behind a
// proxy, write a Key that reads the field which that proxy sets.
package httplimit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/internal/rules"
	"github.com/weir-proxy/weir/proxy/respond"
)

// A Rule limits requests by a key.
type Rule struct {
	// Name is unique and matches [A-Za-z][A-Za-z0-9_.-]*. It names the counts in the store
	// and the policy in responses.
	Name string
	// Rates are one or more rates with different windows, such as "5/1h"; see
	// limiter.ParseRate. All hold at the same time.
	Rates []string
	// Key returns what the request is counted by; see Header and RemoteIP. It returns ErrSkip
	// if the rule does not apply to the request. All other errors are answered with 400.
	Key func(*http.Request) (string, error)
	// Algorithm is TokenBucket by default. Concurrent, Distinct and Cooldown are not valid here.
	Algorithm limiter.Algorithm
	// Burst is the number of permits that may be taken at once. Only GCRA uses it.
	Burst int64
	// Hidden keeps the rule out of responses; only Retry-After takes it into account.
	Hidden bool
}

// Options are options of a Limiter. The zero value is valid.
type Options struct {
	// Refund reports whether a response with this status returns the permits of its request,
	// which happens before the status is sent. Nil returns none. A handler that panics before
	// it has responded counts as status 500. If the client has left, the permits stay taken,
	// because its work may have been done.
	Refund func(status int) bool
	// AllowOnFailure lets requests pass uncounted while the store is unavailable. Otherwise
	// they are answered with 503. A request whose client leaves before the decision never passes.
	AllowOnFailure bool
	// Timeout bounds a decision and a refund; 0 means one second.
	Timeout time.Duration
	// Reject describes refusals; the zero value is a problem document with status 429.
	Reject respond.Reject
	// Fields selects the rate limit fields; empty means respond.IETF.
	Fields respond.Style
}

// A Limiter is middleware. It is safe for concurrent use.
type Limiter struct {
	rules   *rules.Set[*http.Request]
	fields  *respond.RateLimitFields
	options Options
}

// New returns a Limiter of rules that count in store. Errors name the rule that is not valid,
// and wrap ErrInvalid.
func New(store limiter.Store, o Options, all ...Rule) (*Limiter, error) {
	converted := make([]rules.Rule[*http.Request], len(all))
	for i, r := range all {
		converted[i] = r.rule()
	}
	set, err := rules.New(store, cmp.Or(o.Timeout, time.Second), converted...)
	if err != nil {
		return nil, err
	}
	var policies []respond.Policy
	for _, p := range set.Policies() {
		policies = append(policies, respond.Policy{Name: p.Name, Rate: p.Limit.Rate, Expose: !p.Hidden, Limit: p.Rule})
	}
	fields, err := respond.NewRateLimitFields(policies, cmp.Or(o.Fields, respond.IETF), o.Reject)
	if err != nil {
		return nil, errors.Join(ErrInvalid, err)
	}
	return &Limiter{rules: set, fields: fields, options: o}, nil
}

// rule returns r for package rules.
func (r Rule) rule() rules.Rule[*http.Request] {
	out := rules.Rule[*http.Request]{Name: r.Name, Rates: r.Rates, Algorithm: r.Algorithm, Burst: r.Burst,
		Hidden: r.Hidden}
	if r.Key != nil {
		out.Key = func(_ context.Context, request *http.Request) (string, error) { return r.Key(request) }
	}
	return out
}

// Handler returns a handler that passes the requests within the limits to next.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := l.rules.Take(r.Context(), r)
		switch {
		case errors.Is(err, ErrMissing):
			send(w, respond.Problem(respond.KeyMissing, "The request lacks a key that it is counted by.", ""))
		case errors.Is(err, rules.ErrKey):
			send(w, respond.Problem(respond.KeyInvalid, "A key that the request is counted by is not valid.", ""))
		case err != nil && (!l.options.AllowOnFailure || r.Context().Err() != nil): // who leaves must not pass uncounted
			send(w, respond.Unavailable(respond.StoreUnavailable, time.Second, "", ""))
		case err != nil:
			next.ServeHTTP(w, r)
		case !a.Allowed:
			v := respond.Verdict{Decision: &a.Decision, Policies: a.Policies}
			send(w, l.fields.TooManyRequests(respond.Refusal{Verdict: v, Jitter: respond.Jitter(a.Wait, rand.Float64)}))
		default:
			l.pass(w, r, a, next)
		}
	})
}

// pass passes an allowed request to next, and returns its permits by the status of the response.
func (l *Limiter) pass(w http.ResponseWriter, r *http.Request, a *rules.Admission, next http.Handler) {
	l.fields.Headers(respond.Verdict{Decision: &a.Decision, Policies: a.Policies}, w.Header())
	if l.options.Refund == nil || a.Permit.IsZero() {
		next.ServeHTTP(w, r)
		return
	}
	o := &outcomeWriter{ResponseWriter: w, decide: func(status int) {
		if l.options.Refund(status) {
			_ = l.rules.Refund(r.Context(), a) // else the permits stay taken
		}
	}}
	returned := false
	defer func() {
		if !returned { // a panic
			o.settle(http.StatusInternalServerError)
		}
	}()
	next.ServeHTTP(o, r)
	returned = true
	o.settle(http.StatusOK) // of a handler that wrote nothing
}

// send sends a response of the limiter's own.
func send(w http.ResponseWriter, response respond.Response) {
	response.CopyTo(w.Header())
	w.WriteHeader(response.Status)
	_, _ = w.Write(response.Body) // the client may have left
}

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

// An outcomeWriter notices the status of a response before it is sent. Like the writers of
// net/http, it is not safe for concurrent use. It keeps what http.ResponseController and
// type assertions for http.Flusher, http.Hijacker and io.ReaderFrom find.
type outcomeWriter struct {
	http.ResponseWriter
	decide func(status int) // nil once it was called
}

// settle decides by the status, once. An interim status does not decide.
func (o *outcomeWriter) settle(status int) {
	if decide := o.decide; decide != nil && (status >= 200 || status == http.StatusSwitchingProtocols) {
		o.decide = nil
		decide(status)
	}
}

// Unwrap returns the writer of the server, for http.ResponseController.
func (o *outcomeWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader sends the status after it has decided.
func (o *outcomeWriter) WriteHeader(status int) {
	o.settle(status)
	o.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body; the status is 200 unless WriteHeader was called.
func (o *outcomeWriter) Write(b []byte) (int, error) {
	o.settle(http.StatusOK)
	return o.ResponseWriter.Write(b)
}

// ReadFrom copies r to the body, without a copy in between where the server can.
func (o *outcomeWriter) ReadFrom(r io.Reader) (int64, error) {
	o.settle(http.StatusOK)
	return io.Copy(o.ResponseWriter, r)
}

// Flush sends what is buffered.
func (o *outcomeWriter) Flush() {
	o.settle(http.StatusOK)
	_ = http.NewResponseController(o.ResponseWriter).Flush() // a writer that cannot sends it at the end
}

// Hijack takes the connection over. Whatever is sent on it counts as status 101.
func (o *outcomeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err == nil {
		o.settle(http.StatusSwitchingProtocols)
	}
	return conn, buffered, err
}
