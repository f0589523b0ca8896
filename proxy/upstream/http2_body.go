package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A requestBody is the request body that is sent over HTTP/2. A goroutine of net/http
// reads it, and may still read it after the request has ended.
type requestBody struct {
	from        io.Reader
	body        Body
	keepTrailer func(http1.Field) bool
	trailer     http.Header // sent trailer fields: names at first, values at the end of the body

	failure  atomic.Pointer[error] // why reading from the client failed
	complete atomic.Bool           // the body was read to its end
	stopped  atomic.Bool

	mu     sync.Mutex // held during a read; guards closed
	closed bool

	stopMu   sync.Mutex // held while body is stopped; guards released
	released bool       // close has returned: body may belong to another request
}

func newRequestBody(f *forwarding) *requestBody {
	t := f.request
	b := &requestBody{from: t.bodyReader(), body: t.Body, keepTrailer: trailerFilter(t), trailer: http.Header{}}
	for _, line := range t.Fields.Values("Trailer") {
		for name := range http1.Elements(line) {
			if b.keepTrailer(http1.Field{Name: name}) {
				b.trailer[strings.Clone(http.CanonicalHeaderKey(name))] = nil
			}
		}
	}
	return b
}

// Read implements io.Reader. It fails after close.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.from.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		addTrailer(mapHeader(b.trailer), b.body, b.keepTrailer)
		b.complete.Store(true)
	case !b.stopped.Load():
		b.failure.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Stop makes a pending read return, unless the body was read to its end. After close it
// does nothing. net/http has it called when it needs no more of the body, on a goroutine of its own, and possibly after the
// request has ended.
func (b *requestBody) Stop() {
	if b == nil {
		return
	}
	b.stopMu.Lock()
	defer b.stopMu.Unlock()
	if !b.released && !b.complete.Load() {
		b.stopped.Store(true)
		b.body.Stop()
	}
}

// close waits for a pending read and makes later reads fail. The client's body is not
// used any more when it returns.
func (b *requestBody) close() {
	if b == nil {
		return
	}
	b.Stop()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stopMu.Lock()
	b.released = true
	b.stopMu.Unlock()
}

// err returns why the body could not be read from the client, or nil.
func (b *requestBody) err() error {
	if b != nil {
		if err := b.failure.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// An attempt is one request to one target. It gives the target access to the request body, which can be revoked if the body
// has not been read.
type attempt struct {
	*requestBody    // nil if there is no body
	request         *http.Request
	trace           *httptrace.ClientTrace
	responseStarted atomic.Bool // a byte of the response has arrived
	state           atomic.Int32
	timeout         time.Duration
	stalled         *time.Timer // runs while the target has to accept what was read; flow control may keep it from being sent
}

const (
	bodyUnread = iota
	bodyRead
	bodyRevoked
)

// canRetry reports whether the request that failed with err may be sent again. No byte
// of its body may have been read. In addition, either the target has received no part
// of the request, or its method is idempotent and no byte of a response has arrived.
func (a *attempt) canRetry(err error) bool {
	if !notSent(err) && (!http1.Idempotent(a.request.Method) || a.responseStarted.Load() ||
		!connectionClosed(err) || errors.Is(err, context.Canceled)) {
		return false
	}
	return a.requestBody == nil || a.state.CompareAndSwap(bodyUnread, bodyRevoked)
}

// Read implements io.Reader.
func (a *attempt) Read(p []byte) (int, error) {
	if !a.state.CompareAndSwap(bodyUnread, bodyRead) && a.state.Load() == bodyRevoked {
		return 0, http.ErrBodyReadAfterClose
	}
	a.stalled.Stop()
	defer a.stalled.Reset(a.timeout)
	return a.requestBody.Read(p)
}

// Close implements io.Closer. It keeps an unread body open for another attempt.
func (a *attempt) Close() error {
	if a.state.Load() == bodyRead {
		a.Stop()
	}
	return nil
}

// errSentAgain reports that a target has not processed a request, or has reset it, as often as it may get it.
var errSentAgain = errors.New("stream error: reset by the target, or not processed")

// send makes the request r, and returns when the head of the response has arrived. RoundTrip would repeat one without a
// body that the target has refused, has reset for an error of protocol, or has not processed before a GOAWAY: over new
// connections without end, whatever its method. Here one that is not idempotent is made once, and any other twice.
func (t *http2Transport) send(r *http.Request, trace *httptrace.ClientTrace) (*http.Response, error) {
	ctx, stop := context.WithCancelCause(r.Context())
	left := 1
	if http1.Idempotent(r.Method) {
		left = 2
	}
	trace.WroteHeaders = func() { left-- }
	trace.GotConn = func(httptrace.GotConnInfo) {
		if left == 0 {
			stop(errSentAgain)
		}
	}
	res, err := t.RoundTrip(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	return res, err
}
