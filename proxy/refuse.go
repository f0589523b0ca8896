package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	routing "github.com/weir-proxy/weir/proxy/route"
	"github.com/weir-proxy/weir/proxy/upstream"
)

const (
	// crowd is the most of a wait that Retry-After is stretched by at random, so
	// that clients which were refused together do not come back together.
	crowd = 0.1
	// maxJitter is the longest stretch, however long the wait is.
	maxJitter = 30 * time.Second
)

// jitter is what a wait is stretched by; luck is from 0 to below 1. It is in whole
// seconds, as Retry-After is, so that rounding up adds nothing: what is waited for
// less than 10 s is not stretched at all.
func jitter(wait time.Duration, luck float64) time.Duration {
	most := min(time.Duration(crowd*float64(wait)), maxJitter)
	return time.Duration(luck * float64(most.Truncate(time.Second)+time.Second)).Truncate(time.Second)
}

// A quotaResponse is what the client is told of its quota.
type quotaResponse struct {
	policies []int          // of the quota, that the outcomes of the decision are of
	memory   respond.Buffer // what the texts are made in
}

func (t *quotaResponse) reset() {
	t.memory.Discard(http1.RecycleBuffer)
	t.policies = t.policies[:0]
}

// refuse words the response to a request that a stage did not let through.
func (g *generation) refuse(x *exchange, err error) respond.Response {
	x.fail(err)
	switch {
	case errors.Is(err, errRefused), errors.Is(err, errNewKeys):
		return x.route.quota.TooManyRequests(respond.Refusal{
			Verdict:   x.verdict(),
			Jitter:    jitter(x.decision.Wait, rand.Float64()),
			RequestID: x.id,
		})
	case errors.Is(err, http1.ErrConnect):
		return respond.NotAllowed(nil, x.id) // no target of it allows any other method
	case errors.Is(err, errUndecided):
		return respond.Unavailable(respond.StoreUnavailable, time.Second, "", x.id)
	case errors.Is(err, errBuffersFull):
		return respond.Unavailable(respond.BuffersFull, time.Second, "", x.id)
	case errors.Is(err, errListed):
		return respond.Problem(respond.Forbidden, "", x.id)
	case errors.Is(err, routing.ErrMethod):
		return respond.NotAllowed(g.table.Allowed(&x.request), x.id)
	case errors.Is(err, routing.ErrTunnel):
		return respond.NotAllowed(nil, x.id) // no target of it allows any other method
	case errors.Is(err, routing.ErrNone):
		return respond.Problem(respond.NotFound, "", x.id)
	case errors.Is(err, key.ErrMissing):
		return respond.Problem(respond.KeyMissing, err.Error(), x.id)
	case errors.Is(err, errBody):
		return respond.Problem(unread(err), "", x.id)
	case errors.Is(err, key.ErrNoVerificationKeys):
		return respond.Unavailable(respond.StoreUnavailable, time.Second, "", x.id)
	case errors.Is(err, key.ErrAmbiguous), errors.Is(err, key.ErrInvalid), errors.Is(err, key.ErrMismatch),
		errors.Is(err, routing.ErrQuery), errors.Is(err, errCost), errors.Is(err, errIdempotencyKey):
		return respond.Problem(respond.KeyInvalid, err.Error(), x.id)
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

// unread is what to tell a client whose body could not be read: it was late, it
// has left, or what it sent is no body.
func unread(err error) respond.Kind {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return respond.RequestTimeout
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, http1.ErrTruncated):
		return respond.ClientGone
	}
	return respond.BadRequest
}

// verdict is the decision as clients are told of it.
func (x *exchange) verdict() respond.Verdict {
	return respond.Verdict{Decision: &x.decision, Of: x.policies(), Memory: &x.told.memory}
}

// policies maps the outcomes of the decision to the policies of the quota.
func (x *exchange) policies() []int {
	x.told.policies = x.told.policies[:0]
	for i, w := range x.claims.windows {
		policy := w.number
		if x.bothSecrets && x.claims.current(i) != i {
			policy = -1 // it is told of once
		}
		x.told.policies = append(x.told.policies, policy)
	}
	return x.told.policies
}

// failed words the response to a request that could not be forwarded.
func failed(x *exchange) respond.Response {
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
