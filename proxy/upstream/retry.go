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
	// repeatable reports whether it may be sent again after it has failed with err.
	repeatable(err error) bool
	// answer is the final response. It may not be one that can be passed on.
	answer() (status int, f *http1.Fields, err error)
	// relay passes the response on, with the fields that response has returned.
	relay(to Sink) error
	// switched hands over the connection of a target that has answered 101.
	switched() (c net.Conn, unread []byte)
	// release gives up what the sender holds, and the sender. Nobody reads the body of
	// the request any more.
	release()
}

// do acquires a backend, sends the request there, and judges what came of it. It does
// so again with another backend as long as the one before has not seen any of the
// request, or that does no harm, the pool retries and the budget allows it. The last
// backend is busy until leave.
func (p *Pool) do(f *forwarding) error {
	var seen error // why a backend that may have seen the request gave no response
	var tried []*backend
	now := f.began
	if p.retries > 0 {
		p.group.deposit()
	}
	for {
		m, err := p.acquire(f.ctx, now, pickState{f.request.HashBy, tried})
		if err != nil {
			return earlier(seen, err)
		}
		f.backend, f.result.Target = m, m.name
		err = f.send(m)
		p.judge(f, err)
		if err == nil {
			return nil
		}
		f.leave()
		if !unseen(err) {
			seen = err
		}
		if f.result.Retries >= p.retries || f.ctx.Err() != nil || !f.repeatable(err) || !p.group.withdraw() {
			return earlier(seen, err)
		}
		f.result.Retries++
		tried, now = append(tried, m), time.Now()
	}
}

// earlier is the error that matters: that of a target which may have seen the
// request, else the last one.
func earlier(seen, last error) error {
	if seen != nil {
		return seen
	}
	return last
}

// unseen reports whether err says that there was no connection, so that the target
// has seen nothing of the request.
func unseen(err error) bool {
	var fault *http1.CallError
	return errors.As(err, new(*dialError)) || errors.As(err, &fault) && fault.Phase < http1.SendingRequest
}

// judge tells the group whether the backend could be reached. A client that left
// meanwhile proves nothing.
func (p *Pool) judge(f *forwarding, err error) {
	switch {
	case !p.ejects():
	case err == nil:
		p.group.connected(f.backend, p.health, true)
	case unseen(err) && f.ctx.Err() == nil && !errors.Is(err, http1.ErrAborted):
		p.group.connected(f.backend, p.health, false)
	}
}

// leave gives the backend up for others. It may be called more than once.
func (f *forwarding) leave() {
	if f.backend != nil {
		f.pool.group.release(f.backend)
		f.backend = nil
	}
}
