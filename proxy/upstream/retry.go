package upstream

import (
	"errors"
	"net"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A sender sends one request to a target and returns the response. There is one for
// each HTTP version; see transport.
type sender interface {
	// send sends the request and returns when the head of the response has arrived.
	// now is the current time. send may set forwarding.result.FirstByte; otherwise that
	// is the time until send has returned.
	send(m *backend, now time.Time) error
	// canRetry reports whether the request may be sent again after it has failed with
	// err.
	canRetry(err error) bool
	// response returns the head of the final response, or an error if it cannot be
	// forwarded.
	response() (status int, f *http1.Fields, err error)
	// relay sends the response to the client, with the fields that response returned.
	relay(to Sink) error
	// switched hands over the connection to the target after a 101 response.
	switched() (c net.Conn, unread []byte)
	// release releases the resources of the sender. The request body is not read any
	// more.
	release()
}

// sendWithRetries acquires a backend, sends the request and records the outcome. It
// retries with another backend if the pool has retries left, the retry budget allows
// it, and sending the request again is safe; see sender.canRetry. The last backend is
// in use until releaseBackend.
func (p *Pool) sendWithRetries(f *forwarding) error {
	var seen error // the error of a backend that may have received the request
	var tried []*backend
	now := f.start
	if p.retries > 0 {
		p.group.deposit()
	}
	for {
		m, err := p.acquire(f.ctx, now, selection{f.request.HashBy, tried, f.request.Stripe})
		if err != nil {
			return moreRelevant(seen, err)
		}
		f.backend, f.result.Target = m, m.name
		if p.maxConnections > 0 {
			now = time.Now() // acquire may have waited
		}
		err = f.send(m, now)
		p.recordOutcome(f, err)
		if err == nil {
			return nil
		}
		f.releaseBackend()
		if !notSent(err) {
			seen = err
		}
		if f.result.Retries >= p.retries || f.ctx.Err() != nil || !f.canRetry(err) || !p.group.withdraw() {
			return moreRelevant(seen, err)
		}
		f.result.Retries++
		tried, now = append(tried, m), time.Now()
	}
}

// moreRelevant returns seen if there is one, otherwise last: the error of a target that
// may have received the request is more relevant.
func moreRelevant(seen, last error) error {
	if seen != nil {
		return seen
	}
	return last
}

// notSent reports whether err means that no connection was established, so that the
// target has received nothing.
func notSent(err error) bool {
	var fault *http1.CallError
	return errors.As(err, new(*dialError)) || errors.As(err, &fault) && fault.Phase < http1.SendingRequest
}

// recordOutcome records whether the backend could be reached, for passive health
// checks. If the client is gone, nothing is recorded.
func (p *Pool) recordOutcome(f *forwarding, err error) {
	switch {
	case !p.ejects():
	case err == nil:
		p.group.recordConnect(f.backend, &p.health, true)
	case notSent(err) && f.ctx.Err() == nil && !errors.Is(err, http1.ErrAborted):
		p.group.recordConnect(f.backend, &p.health, false)
	}
}

// releaseBackend releases the backend. It may be called more than once.
func (f *forwarding) releaseBackend() {
	if f.backend != nil {
		f.pool.group.release(f.backend, f.request.Stripe)
		f.backend = nil
	}
}

const (
	retryRatio   = 0.2 // retries per request
	retryReserve = 10  // initial and maximum number of retries saved up
)

// A retryBudget prevents retries from amplifying an outage: in the long run at most a
// fifth of the requests are retried.
type retryBudget struct{ tokens float64 }

func newRetryBudget() retryBudget { return retryBudget{retryReserve} }

// deposit is called once for each request.
func (b *retryBudget) deposit() { b.tokens = min(b.tokens+retryRatio, retryReserve) }

// withdraw reports whether the budget allows one retry, and takes it from the budget.
func (b *retryBudget) withdraw() bool {
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
