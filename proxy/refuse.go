package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A rateLimitFields holds the rate limit fields of a response.
type rateLimitFields struct {
	policies []int             // the policy of each outcome of the decision
	buffer   respond.Buffer    // the memory of the field values
	block    *http1.FieldBlock // refuse: the first fields of the refusal, if they are rendered; see respond.Response.Constant
}

func (r *rateLimitFields) reset() {
	r.buffer.Discard(http1.RecycleBuffer)
	*r = rateLimitFields{policies: r.policies[:0], buffer: r.buffer}
}

// refuse returns the response to a request that a stage has refused with err.
func (g *generation) refuse(x *exchange, err error) respond.Response {
	x.fail(err)
	if x.steps != nil && x.steps.by != nil && errors.Is(err, errRefused) {
		return x.challenge()
	}
	if x.isRefused() || errors.Is(err, errRefused) || errors.Is(err, errNewKeys) { // the first is the cheapest
		return g.refuseByLimit(x)
	}
	return x.errorTexts(g).Replace(g.refuseError(x, err), x.id, x.origin())
}

// refuseByLimit returns the response to a request that a limit has refused.
func (g *generation) refuseByLimit(x *exchange) (answer respond.Response) {
	l, r := x.route.rateLimitFields, respond.Refusal{Verdict: x.verdict(), Jitter: respond.Jitter(x.decision.Wait, rand.Float64), RequestID: x.id}
	if l.HasOrigin() {
		r.Origin = x.origin()
	}
	if x.idGiven {
		answer = l.TooManyRequests(r)
	} else {
		answer, x.rateLimitFields.block = g.refusals.TooManyRequests(l, &r)
	}
	if x.rateLimitFields.block == nil && answer.Constant > 0 {
		x.rateLimitFields.block = x.route.refusalFields
	}
	return answer
}

// challenge returns the response to a request that may pass by step_up.
func (x *exchange) challenge() respond.Response {
	s := x.steps.by.StepUp
	c := respond.Challenge{Name: s.Challenge, Detail: "Solve the challenge " + s.Challenge + ", and repeat the request with its token in " + s.Header + "."}
	if x.steps.result != decisions.ChallengeIssued {
		c.Detail += " Refused: " + x.steps.problem.Error() + "."
	}
	return x.route.rateLimitFields.Challenge(c, respond.Refusal{Verdict: x.verdict(), Jitter: respond.Jitter(x.decision.Wait, rand.Float64), RequestID: x.id, Origin: x.origin()})
}

// origin returns the field Origin of the request, "" if it does not have exactly one.
func (x *exchange) origin() string {
	if lines := x.in.header.Values("Origin"); len(lines) == 1 {
		return lines[0]
	}
	return ""
}

// errorTexts returns the configured texts of errors.
func (x *exchange) errorTexts(g *generation) *respond.ErrorTexts {
	if x.route != nil {
		return x.route.errorTexts
	}
	return g.errorTexts
}

// refuseError returns the response to a request that no limit has refused.
func (g *generation) refuseError(x *exchange, err error) respond.Response {
	var maintenance maintenanceError
	switch {
	case errors.As(err, &maintenance):
		return respond.Unavailable(respond.Maintenance, maintenance.retryAfter(), "", x.id)
	case errors.Is(err, errPlainHTTP):
		return g.redirectHTTPS(x)
	case errors.Is(err, http1.ErrConnect):
		return respond.NotAllowed(nil, x.id) // no method is allowed for an authority target
	case errors.Is(err, errUndecided):
		return respond.Unavailable(respond.StoreUnavailable, time.Second, "", x.id)
	case errors.Is(err, body.ErrFull):
		return respond.Unavailable(respond.BuffersFull, time.Second, "", x.id)
	case errors.Is(err, errDenied), errors.Is(err, errPrice):
		return respond.Problem(respond.Forbidden, "", x.id)
	case errors.Is(err, routing.ErrMethod):
		return respond.NotAllowed(g.table.Allowed(&x.request), x.id)
	case errors.Is(err, routing.ErrTunnel):
		return respond.NotAllowed(nil, x.id) // no method is allowed for an authority target
	case errors.Is(err, routing.ErrNone):
		return respond.Problem(respond.NotFound, "", x.id)
	case errors.Is(err, key.ErrMissing):
		return refuseKey(x, respond.KeyMissing, err)
	case errors.Is(err, errBody):
		return respond.Problem(bodyErrorKind(err), "", x.id)
	case errors.Is(err, key.ErrNoVerificationKeys):
		return respond.Unavailable(respond.StoreUnavailable, time.Second, "", x.id)
	case errors.Is(err, key.ErrAmbiguous), errors.Is(err, key.ErrInvalid), errors.Is(err, key.ErrMismatch),
		errors.Is(err, routing.ErrQuery), errors.Is(err, errCost), errors.Is(err, errIdempotencyKey):
		return refuseKey(x, respond.KeyInvalid, err)
	case errors.Is(err, routing.ErrTargetTooLong):
		return respond.Problem(respond.TargetTooLong, "", x.id)
	case errors.Is(err, routing.ErrTarget), errors.Is(err, errMalformed), errors.Is(err, errConnection):
		return respond.Problem(respond.BadRequest, err.Error(), x.id)
	case errors.Is(err, errTooLong), errors.Is(err, key.ErrBodyTooLarge):
		return respond.Problem(respond.BodyTooLarge, err.Error(), x.id)
	}
	if kind, ok := parseFailure(err); ok {
		return respond.Problem(kind, err.Error(), x.id)
	}
	return respond.Problem(respond.KindOf(err), "", x.id)
}

// refuseKey returns the response to a request whose key cannot be read: 401 if that is because of its
// bearer token.
func refuseKey(x *exchange, kind respond.Kind, err error) respond.Response {
	if challenge := key.Challenge(err, x.request.Host); challenge != "" {
		return respond.Unauthorized(challenge, err.Error(), x.id)
	}
	return respond.Problem(kind, err.Error(), x.id)
}

// bodyErrorKind returns the response to a request whose body could not be read: the client was too slow,
// has disconnected, or sent an invalid body.
func bodyErrorKind(err error) respond.Kind {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return respond.RequestTimeout
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, http1.ErrTruncated):
		return respond.ClientGone
	}
	return respond.BadRequest
}

// verdict returns the decision in the form of package respond.
func (x *exchange) verdict() respond.Verdict {
	return respond.Verdict{Decision: &x.decision, Policies: x.policies(), Counts: x.counts(), Without: x.unlimited(), Buffer: &x.rateLimitFields.buffer}
}

// policies maps the outcomes of the decision to the policies of the quota.
func (x *exchange) policies() []int {
	x.rateLimitFields.policies = x.rateLimitFields.policies[:0]
	for i, w := range x.claims.windows {
		policy := w.number
		if x.bothSecrets && x.claims.currentIndex(i) != i {
			policy = -1 // one policy for both secrets
		}
		x.rateLimitFields.policies = append(x.rateLimitFields.policies, policy)
	}
	return x.rateLimitFields.policies
}

// counts returns the counts of the rates that the descriptor of x has; see respond.Verdict.
func (x *exchange) counts() []int64 {
	if x.in.rate == nil {
		return nil
	}
	counts := make([]int64, len(x.claims.windows))
	for i, w := range x.claims.windows {
		if w.isUnit {
			counts[i] = w.Rate.Count
		}
	}
	return counts
}

// forwardErrorResponse returns the response to a request that could not be forwarded.
func forwardErrorResponse(x *exchange) respond.Response {
	kind := respond.BadGateway
	switch x.outcome.result.Kind {
	case upstream.Timeout, upstream.ConnectTimeout:
		kind = respond.GatewayTimeout
	case upstream.BodyTimeout:
		kind = respond.RequestTimeout
	case upstream.ClientGone:
		kind = respond.ClientGone
	case upstream.BadRequest:
		kind = respond.BadRequest
	case upstream.BodyTooLarge:
		kind = respond.BodyTooLarge
	case upstream.NoTarget, upstream.QueueFull:
		return respond.Unavailable(respond.NoUpstream, time.Second, "", x.id)
	case upstream.LoopDetected:
		kind = respond.LoopDetected
	case upstream.MaxForwards:
		return respond.MaxForwards(x.request.Method, x.id)
	}
	return respond.Problem(kind, "", x.id)
}
