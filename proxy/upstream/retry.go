package upstream

import (
	"errors"
	"net"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A sender takes one request to a target, and brings the response back. Each version
// of HTTP that targets speak has one; see transport.
type sender interface {
	// send takes the request to a target and returns when the header of its response
	// is there.
	send(m *backend) error
	// canRetry reports whether it may be sent again after it has failed with err.
	canRetry(err error) bool
	// response is the final response. It may not be one that can be passed on.
	response() (status int, f *http1.Fields, err error)
	// relay passes the response on, with the fields that response has returned.
	relay(to Sink) error
	// switched hands over the connection of a target that has answered 101.
	switched() (c net.Conn, unread []byte)
	// release gives up what the sender holds, and the sender. Nobody reads the body of
	// the request any more.
	release()
}

// sendWithRetries acquires a backend, sends the request there, and judges what came of it. It does
// so again with another backend as long as the one before has not seen any of the
// request, or that does no harm, the pool retries and the budget allows it. The last
// backend is busy until leave.
func (p *Pool) sendWithRetries(f *forwarding) error {
	var seen error // why a backend that may have seen the request gave no response
	var tried []*backend
	now := f.start
	if p.retries > 0 {
		p.group.deposit()
	}
	for {
		m, err := p.acquire(f.ctx, now, selection{f.request.HashBy, tried})
		if err != nil {
			return moreRelevant(seen, err)
		}
		f.backend, f.result.Target = m, m.name
		err = f.send(m)
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

// moreRelevant is the error that matters: that of a target which may have seen the
// request, else the last one.
func moreRelevant(seen, last error) error {
	if seen != nil {
		return seen
	}
	return last
}

// notSent reports whether err says that there was no connection, so that the target
// has seen nothing of the request.
func notSent(err error) bool {
	var fault *http1.CallError
	return errors.As(err, new(*dialError)) || errors.As(err, &fault) && fault.Phase < http1.SendingRequest
}

// recordOutcome tells the group whether the backend could be reached. A client that left
// meanwhile proves nothing.
func (p *Pool) recordOutcome(f *forwarding, err error) {
	switch {
	case !p.ejects():
	case err == nil:
		p.group.recordConnect(f.backend, p.health, true)
	case notSent(err) && f.ctx.Err() == nil && !errors.Is(err, http1.ErrAborted):
		p.group.recordConnect(f.backend, p.health, false)
	}
}

// releaseBackend gives the backend up for others. It may be called more than once.
func (f *forwarding) releaseBackend() {
	if f.backend != nil {
		f.pool.group.release(f.backend)
		f.backend = nil
	}
}
