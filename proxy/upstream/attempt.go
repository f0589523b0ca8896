package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
)

// RoundTrip takes the request that rewrite has made to a target, and to others
// as long as the one before has not seen any of it, the pool retries and the
// budget allows it. The journey keeps the last one busy until it leaves.
func (j *journey) RoundTrip(r *http.Request) (*http.Response, error) {
	var seen error // why a target that may have seen the request gave no answer
	var tried []*member
	if j.pool.retries > 0 {
		j.pool.crew.deposit()
	}
	for {
		m, err := j.pool.acquire(r.Context(), asking{j.trip.Affinity, tried})
		if err != nil {
			return nil, earlier(seen, err)
		}
		j.member, j.result.Target = m, m.name
		try := j.attempt(r, m)
		res, err := j.pool.carrier().RoundTrip(try.request)
		j.judge(err)
		if err == nil {
			j.named = res.Header["Connection"]
			return res, nil
		}
		j.leave()
		if unseen := errors.As(err, new(*dialError)); !unseen {
			seen = err
		}
		if j.result.Retries >= j.pool.retries || r.Context().Err() != nil || !try.repeatable(err) || !j.pool.crew.withdraw() {
			return nil, earlier(seen, err)
		}
		j.result.Retries++
		tried = append(tried, m)
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

// judge tells the crew whether the target could be reached. A client that left
// meanwhile proves nothing.
func (j *journey) judge(err error) {
	var dialled *dialError
	switch {
	case !j.pool.watches():
	case err == nil:
		j.pool.crew.connected(j.member, j.pool.health, true)
	case errors.As(err, &dialled) && j.in.Context().Err() == nil:
		j.pool.crew.connected(j.member, j.pool.health, false)
	}
}

// leave gives the member up for others. It may be called more than once.
func (j *journey) leave() {
	if j.member != nil {
		j.pool.crew.release(j.member)
		j.member = nil
	}
}

// An attempt is one request to one target.
type attempt struct {
	request *http.Request
	body    *attemptBody // nil if it has none, or is not to be repeated
	begun   atomic.Bool  // the target has begun to answer
}

// attempt addresses r to m. A pool that retries keeps an eye on how far it gets.
func (j *journey) attempt(r *http.Request, m *member) *attempt {
	try := &attempt{}
	ctx := j.turn.watched(r.Context())
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
	if !errors.As(err, new(*dialError)) {
		if !idempotent(a.request.Method) || a.begun.Load() || !closed(err) || errors.Is(err, context.Canceled) {
			return false
		}
	}
	return a.body == nil || a.body.giveUp()
}

// idempotent reports whether doing it twice is doing it once (RFC 9110 9.2.2).
func idempotent(method string) bool {
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"}, method)
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

// giveUp ends the loan and reports whether the body is as it was.
func (b *attemptBody) giveUp() bool { return b.state.CompareAndSwap(untouched, givenUp) }
