package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A requestBody is the client's body on its way to the target. It is read by
// net/http's own goroutine, which may go on doing so when the request has ended.
type requestBody struct {
	from        io.Reader
	body        Body
	keepTrailer func(http1.Field) bool
	trailer     http.Header // that is sent: names at first, values at the end of the body

	failure  atomic.Pointer[error] // what went wrong when reading from the client
	complete atomic.Bool           // all of it has been read
	stopped  atomic.Bool

	mu     sync.Mutex // held while it is read, and guards what follows
	closed bool
}

func newRequestBody(f *forwarding) *requestBody {
	t := f.request
	b := &requestBody{from: t.bodyReader(), body: t.Body, keepTrailer: trailerFilter(t), trailer: http.Header{}}
	for _, line := range t.Fields.Values("Trailer") {
		for name := range listElements(line) {
			if b.keepTrailer(http1.Field{Name: name}) {
				b.trailer[http.CanonicalHeaderKey(name)] = nil
			}
		}
	}
	return b
}

// Read reads the client's body, until end.
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
		for f := range b.body.Trailer().All() {
			if b.keepTrailer(f) {
				mapHeader(b.trailer).Add(f.Name, f.Value)
			}
		}
		b.complete.Store(true)
	case !b.stopped.Load():
		b.failure.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Close ends reading, as net/http wants no more.
func (b *requestBody) Close() error {
	b.Stop()
	return nil
}

// Stop ends reading, unless all has been read.
func (b *requestBody) Stop() {
	if b != nil && !b.complete.Load() {
		b.stopped.Store(true)
		b.body.Stop()
	}
}

// close waits for whoever still reads, and lets nobody begin to.
func (b *requestBody) close() {
	if b == nil {
		return
	}
	b.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// err is why the client's body could not be read, nil if it could be so far.
func (b *requestBody) err() error {
	if b == nil {
		return nil
	}
	if err := b.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// An attempt is one request to one target.
type attempt struct {
	request         *http.Request
	body            *attemptBody // nil if it has none, or is not to be repeated
	responseStarted atomic.Bool  // the target has begun to answer
}

// canRetry reports whether the request that failed with err may be sent again:
// no byte of its body has been read, and the target has certainly seen nothing
// of it, or its method is idempotent and no byte came back.
func (a *attempt) canRetry(err error) bool {
	if !notSent(err) && (!http1.Idempotent(a.request.Method) || a.responseStarted.Load() || !connectionClosed(err) || errors.Is(err, context.Canceled)) {
		return false
	}
	return a.body == nil || a.body.revoke()
}

// An attemptBody lends a request's body to one attempt, and takes it back if
// that has not begun to read it.
type attemptBody struct {
	io.ReadCloser
	state atomic.Int32
}

const (
	bodyUnread = iota
	bodyRead
	bodyRevoked
)

func (b *attemptBody) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(bodyUnread, bodyRead) && b.state.Load() == bodyRevoked {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// Close leaves a body alone that another attempt may still need.
func (b *attemptBody) Close() error {
	if b.state.Load() == bodyRead {
		return b.ReadCloser.Close()
	}
	return nil
}

// revoke ends the loan and reports whether the body is as it was.
func (b *attemptBody) revoke() bool { return b.state.CompareAndSwap(bodyUnread, bodyRevoked) }
