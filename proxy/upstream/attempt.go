package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/weir-proxy/weir/proxy/http1"
)

// RoundTrip takes the request that rewrite has made where its course leads.
func (j *forwarding) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &attempts{forwarding: j, made: r}
	if err := j.do(r.Context(), a); err != nil {
		return nil, err
	}
	j.connectionOptions = a.answer.Header["Connection"]
	return a.answer, nil
}

// attempts is a sender of requests as net/http knows them.
type attempts struct {
	*forwarding
	made   *http.Request // as rewrite made it
	last   *attempt
	answer *http.Response
}

func (a *attempts) send(m *backend) error {
	a.last = a.attempt(a.made, m)
	var err error
	a.answer, err = a.pool.carrier().RoundTrip(a.last.request)
	return err
}

func (a *attempts) repeatable(err error) bool { return a.last.repeatable(err) }

// An attempt is one request to one target.
type attempt struct {
	request *http.Request
	body    *attemptBody // nil if it has none, or is not to be repeated
	begun   atomic.Bool  // the target has begun to answer
}

// attempt addresses r to m. A pool that retries keeps an eye on how far it gets.
func (j *forwarding) attempt(r *http.Request, m *backend) *attempt {
	try := &attempt{}
	ctx := r.Context()
	if j.pool.retries > 0 {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { try.begun.Store(true) }})
	}
	try.request = r.WithContext(ctx) // a shallow copy, as each target has its own URL
	u := *r.URL
	try.request.URL = &u
	m.address(&u, j.trip.Path, j.trip.RawQuery)
	if j.pool.retries > 0 && r.Body != nil {
		try.body = &attemptBody{ReadCloser: r.Body}
		try.request.Body = try.body
	}
	return try
}

// repeatable reports whether the request that failed with err may be sent again:
// no byte of its body has been read, and the target has certainly seen nothing
// of it, or its method is idempotent and no byte came back.
func (a *attempt) repeatable(err error) bool {
	var fault *http1.Fault
	switch {
	case unseen(err):
	case errors.As(err, &fault):
		if !fault.Repeatable(a.request.Method) || !closed(err) {
			return false
		}
	case !http1.Idempotent(a.request.Method) || a.begun.Load() || !closed(err) || errors.Is(err, context.Canceled):
		return false
	}
	return a.body == nil || a.body.giveUp()
}

// An attemptBody lends a request's body to one attempt, and takes it back if
// that has not begun to read it.
type attemptBody struct {
	io.ReadCloser
	state atomic.Int32
}

const (
	untouched = iota
	touched
	givenUp
)

func (b *attemptBody) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(untouched, touched) && b.state.Load() == givenUp {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// Close leaves a body alone that another attempt may still need.
func (b *attemptBody) Close() error {
	if b.state.Load() == touched {
		return b.ReadCloser.Close()
	}
	return nil
}

// Stop implements stopper.
func (b *attemptBody) Stop() {
	if b.state.Load() == touched {
		stop(b.ReadCloser)
	}
}

// giveUp ends the loan and reports whether the body is as it was.
func (b *attemptBody) giveUp() bool { return b.state.CompareAndSwap(untouched, givenUp) }
