package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/limit"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
	"github.com/weir-proxy/weir/proxy/view"
)

// A Question is a request that another proxy, the peer, has received, and about which it asks before it
// forwards the request itself. The caller has made sure that the peer may ask.
type Question struct {
	Listener string // what the request came by, for records: decide/nginx
	// Deadline is when the answer is due. A decision of a shared store that is not made by then is
	// refunded when it is, and each limit decides by its on_store_failure. No request waits for a
	// permit. The zero Time is not allowed.
	Deadline time.Time
	// Hold is how long concurrent permits are held for an outcome; see Settle.
	Hold time.Duration

	Method, Scheme, Host string
	Target               string        // path and query as the client sent them; both are checked as those of any request
	Fields               *http1.Fields // the fields of the client's request, without those that the peer has added
	Client               netip.Addr    // who sent the request to the peer; behind trusted proxies see config.ClientIP
	Length               int64         // of the body; -1 if it is unknown, or if the peer keeps a body for itself
	Body                 io.Reader     // nil if the peer sends none; a key in it is then missing
}

// An Answer is the decision about a Question. It is valid until the function that receives it returns.
type Answer struct {
	Allowed bool
	// Response is for the client: all of it if the request is refused, whatever the reason. Of an allowed
	// request it has the status 200 and only the fields to be added to the response of the upstream.
	Response respond.Response
	// Upstream are the fields that the route or a key sets in the request to the upstream.
	Upstream  []respond.Field
	RequestID string
	// Pending is what Settle needs to act on the outcome of the request, nil if no rule of the route
	// depends on it. It is not secret and not protected: a caller that hands it out adds a MAC and an expiry.
	Pending []byte
	At      time.Time // of the decision, by the clock of the store if it has decided
}

// EnvoyListener is the Listener of calls of Envoy's rate limit service.
const EnvoyListener = "decide/envoy"

// A DescriptorQuestion is a call of Envoy's rate limit service: descriptors of one request, that are
// all allowed together, or none. The caller has made sure that the peer may ask.
type DescriptorQuestion struct {
	Listener, Domain string
	Method, Path     string // of the call, for records
	Deadline         time.Time
	Hold             time.Duration // as in Question
	Descriptors      []AskedDescriptor
}

// An AskedDescriptor is a descriptor and its cost. A cost of 0 asks whether a request that costs 1 would be
// allowed: nothing is taken, and only a refusal is recorded.
type AskedDescriptor struct {
	routing.Descriptor
	Hits int64
	Rate *limiter.Rate // replaces that of limits with rate_from: descriptor; nil if it has none, and its Count may be 0
}

// A DescriptorAnswer is the decision about a DescriptorQuestion. It is valid until the function that
// receives it returns.
type DescriptorAnswer struct {
	Answer                      // Pending is nil
	Statuses []DescriptorStatus // by descriptor
	Pendings [][]byte           // of the descriptors, as Answer.Pending; those without one are left out
}

// A DescriptorStatus is the decision about one descriptor. The zero value is that of one that
// no route matches.
type DescriptorStatus struct {
	Refused   bool
	Shadow    bool          // a limit in shadow mode would have refused
	Limit     string        // the name of the limit with the fewest permits left; "" if there is none that clients may see
	Rate      limiter.Rate  // its rate
	Remaining int64         // its permits
	Reset     time.Duration // until it has permits, or more of them
}

// Decide decides about a request that a peer has received, by the stages that serve requests, and calls
// answer with the result, which reports whether the peer still waits for it. It forwards nothing. The decision is
// logged, counted and recorded as a request of this proxy is, with its listener. The permits of an allowed request
// stay taken unless Settle is called with its Pending; those for which the peer has not waited are refunded.
func (p *Proxy) Decide(ctx context.Context, q *Question, answer func(*Answer) (received bool)) {
	x := p.exchanges.Get().(*exchange)
	content := questionBody{x: x, Question: q, Buffer: body.Buffer{Budget: p.buffers}}
	defer content.Release()
	q.fill(x)
	x.in.body = &content
	err := p.accept(x)
	if err == nil {
		err = p.decide(ctx, x)
	}
	a := &Answer{Allowed: err == nil, RequestID: x.id}
	switch {
	case err != nil:
		a.Response = x.generation.refuse(x, err)
	case x.route.Redirect != nil, x.route.Respond != nil && x.route.Respond.Status >= 300: // the peer would forward it
		a.Allowed, a.Response = false, x.reply()
	default:
		a.Response, a.Upstream = x.withRateLimits(respond.Response{Status: 200}), x.upstreamFields()
		a.Pending, a.At = x.Pending(p.shared.pseudonym, x.extracted.keys), cmp.Or(x.Decision.At, x.began)
	}
	x.outcome.known = err == nil
	received := answer(a)
	x.response.status, x.response.bytes = a.Response.Status, int64(len(a.Response.Body))
	switch {
	case err != nil:
	case !a.Allowed:
		p.admitter.Settle(ctx, &x.Admission, x.settledOutcome())
	case received:
		p.admitter.Hold(&x.Admission, q.Hold)
	default:
		x.giveBack()
	}
	p.endDecision(ctx, x)
}

// giveBack refunds the permits of an allowed x, for which the peer has not waited. If the store cannot be reached, they
// stay taken.
func (x *exchange) giveBack() {
	x.response.status, x.outcome, x.KeepsPermits = respond.ClientGone, forwardOutcome{known: true, refund: true}, false
	x.Admitter.Settle(context.Background(), &x.Admission, x.settledOutcome())
}

// onlyDecided reports whether r has nothing to which requests go: only other proxies ask about it.
func (r *route) onlyDecided() bool { return r.Upstream == nil && r.Redirect == nil && r.Respond == nil }

// upstreamFields returns the fields that the route or a key sets in the request to the upstream.
func (x *exchange) upstreamFields() (fields []respond.Field) {
	for name, values := range x.generation.setFields(x) {
		fields = slices.Concat(fields, view.Each(values, func(value string) respond.Field { return respond.Field{Name: name, Value: value} }))
	}
	return fields
}

// status returns the decision about a descriptor.
func (x *exchange) status() DescriptorStatus {
	s := DescriptorStatus{Shadow: slices.ContainsFunc(x.Shadow.Errors, isExposed) ||
		slices.ContainsFunc(x.Shadow.Refusals, func(r limit.Refusal) bool { return isExposed(r.Window.Of) })}
	for i, o := range x.Decision.Outcomes {
		w := x.Claims.Window(i)
		if !w.Of.IsShown() || o.Unknown || s.Limit != "" && o.Allowed && o.Remaining >= s.Remaining {
			continue
		}
		s.Limit, s.Rate, s.Remaining, s.Reset = w.Of.Name, w.Written(w.Rate), o.Remaining, o.Wait
		if !o.Allowed {
			break
		}
	}
	return s
}

func isExposed(l *limit.Limit) bool { return l.Expose }

// checkNumber returns an error if there are more claims than one decision may have, and logs it.
func (c *call) checkNumber() error {
	n := len(c.all.Claims)
	if n <= limiter.MaxClaims {
		return nil
	}
	err := fmt.Errorf("%w: %d claims on limits in one call; at most %d are allowed", limit.ErrCost, n, limiter.MaxClaims)
	c.proxy.tooManyLog.Warn().Err(err).Str("domain", c.question.Domain).Int("descriptors", len(c.question.Descriptors)).Msg("call with too many descriptors refused")
	return err
}

// endDecision records x, whose permits stay taken.
func (p *Proxy) endDecision(ctx context.Context, x *exchange) {
	x.duration = time.Since(x.began)
	x.saveUserAgent()
	p.shared.observe(x)
	x.StopRenewing()
	x.TakenPermits = x.TakenPermits[:0]
	p.end(ctx, x)
}

// fill sets the exchange from q.
func (q *Question) fill(x *exchange) {
	x.request.Method, x.request.HostField, x.request.Proto, x.request.RequestTarget = q.Method, q.Host, "HTTP/1.1", q.Target
	x.in.listener, x.in.scheme, x.in.peer = q.Listener, q.Scheme, netip.AddrPortFrom(q.Client, 0)
	x.in.header, x.in.length = q.Fields, q.Length
	x.readFieldNames(q.Fields)
	x.Due = q.Deadline
	// A target that arrives in a field has not been checked by the parser of requests.
	if strings.ContainsFunc(q.Target, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		x.in.parseErr = http1.ErrTarget
	}
}

// A questionBody is the body of a Question.
type questionBody struct {
	*Question
	body.Buffer
	x *exchange
}

// readAll implements bodyReader.
func (q *questionBody) readAll(maxBytes int64) ([]byte, error) {
	if q.Body == nil {
		return nil, nil
	}
	beside := int64(0)
	if q.Length < 0 {
		beside = http1.BodyBufferSize
	}
	read, err := q.x.readBody(&q.Buffer, io.LimitReader(q.Body, maxBytes+1), maxBytes+1, beside)
	if int64(len(read)) > maxBytes {
		return nil, bodyTooLarge(maxBytes)
	}
	return read, err
}

var (
	// ErrSettled reports that the outcome of a request was reported before.
	ErrSettled = errors.New("the outcome of this request is known already")
	// ErrNotPending reports that Settle was called with something else than a Pending, or that the
	// configuration has no such route any more.
	ErrNotPending = errors.New("no outcome of this request is expected")
	// ErrLate reports that the outcome was reported later than OutcomeReport.Until.
	ErrLate = errors.New("the time for this outcome is over")
)

// An OutcomeReport is what a peer, or the application behind it, reports about a request that Decide allowed.
type OutcomeReport struct {
	Pending []byte        // of the Answer
	Status  int           // the status of the response
	Refund  bool          // the permits are refunded, whatever the status; it may be 0
	Cost    int64         // what the request has cost after all, or 0; then the status may be 0
	Less    int64         // how much less than Decide took for it, or 0; then the status may be 0
	Valid   time.Duration // the time for which the caller accepts reports of a request; whole milliseconds
	Until   time.Time     // when it ends, by the clock of the store; zero if the caller knows
}

// Settle does what the status of a response does: it refunds by refund_on and count, resets cooldowns,
// returns permits by return_on, and releases concurrent permits. Any node of a cluster can do so, once
// for each Pending: the store remembers that for r.Valid, and then r is late by the same clock, whatever those of the nodes say. Other
// errors than ErrSettled, ErrLate and ErrNotPending wrap limiter.ErrUnavailable; then r may be repeated.
//
// With r.Refund the request did not happen: all its permits are refunded, and nothing else is done. With r.Cost or r.Less
// each of its limits that counts requests gets back what is too much, or gives what is missing, whatever is left; of
// what takes a price all is refunded with r.Less. Concurrent permits are released.
func (p *Proxy) Settle(ctx context.Context, r OutcomeReport) error {
	x := p.exchanges.Get().(*exchange)
	p.enter(x)
	defer p.leave(x)
	if !x.restorePending(r.Pending, p.shared.pseudonym) {
		return ErrNotPending
	}
	once := &limiter.Limit{Name: "decide.outcome:once", Rate: limiter.Rate{Count: 1, Window: r.Valid}}
	first := []limiter.Claim{{Limit: once, Key: limiter.KeyOf("outcome", string(r.Pending)), Cost: 1}}
	var d limiter.Decision
	store := p.admitter.SharedStore()
	if err := store.Take(ctx, first, &d); err != nil {
		return err
	}
	switch {
	case !r.Until.IsZero() && d.At.After(r.Until):
		return ErrLate
	case !d.Allowed:
		return ErrSettled
	}
	if r.Cost > 0 || r.Less > 0 {
		return p.admitter.SettleCost(ctx, &x.Admission, limit.Correction{Cost: r.Cost, Less: r.Less}, func() error { return store.Refund(context.WithoutCancel(ctx), first, d.Permit) })
	}
	x.outcome = forwardOutcome{known: true, refund: r.Refund, result: upstream.Result{Target: "peer", Status: r.Status}}
	if !r.Refund {
		x.settleHead(r.Status)
	}
	p.admitter.Settle(ctx, &x.Admission, x.settledOutcome())
	p.admitter.CountSends(x.Sends)
	if x.Err != nil { // what was refunded is not refunded again
		return errors.Join(limiter.ErrUnavailable, x.Err, store.Refund(context.WithoutCancel(ctx), first, d.Permit))
	}
	return nil
}

// restorePending sets what settling a request needs. It reports false if b is not of a route of this generation.
func (x *exchange) restorePending(b []byte, node string) bool {
	keys, restored := x.Restore(b, node, func(name string) *limit.Route {
		i := slices.IndexFunc(x.generation.routes, func(r *route) bool { return r.Name == name })
		if i < 0 {
			return nil
		}
		x.setRoute(x.generation.routes[i])
		return &x.route.Route
	})
	x.extracted.keys = append(x.extracted.keys, keys...)
	return restored
}
