package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

const (
	// minBodyRate is the minimum average rate of a request body, in bytes per second, from its
	// first byte on. It bounds the duration of clients that send single bytes at long intervals and
	// therefore always make progress.
	minBodyRate = 500
	// bodyRateTolerance is the total delay that a body may accumulate before minBodyRate is
	// enforced. TCP retransmits a lost packet after one second, and again after two more.
	bodyRateTolerance = 5 * time.Second
)

// A readDeadliner sets the deadline for reading. http.ResponseController is one.
type readDeadliner interface {
	SetReadDeadline(t time.Time) error
}

// A body is the request body as read from the client. Read returns os.ErrDeadlineExceeded if the
// client sends nothing for the duration wait, or sends below minBodyRate for too long;
// *http.MaxBytesError if the body is too long; and http.ErrBodyReadAfterClose after the request has
// ended. Only the time spent waiting for the client counts, so a slow upstream does not cause a
// timeout. After the response has begun there is no deadline: client and upstream may then exchange
// data at any rate. A body is safe for concurrent use.
type body struct {
	io.Reader
	deadlines readDeadliner
	timeout   time.Duration        // maximum time without progress; 0 for no limit
	maxBytes  int64                // maximum length in bytes; 0 for no limit
	isStream  bool                 // a stream of messages, for which no minimum rate applies
	trailer   func() *http1.Fields // returns the trailer fields; valid after the end of the body

	mu              sync.Mutex    // guards what follows; never held while reading
	reading         bool          // a Read is waiting for the client
	responseStarted bool          // the response has begun; there are no deadlines
	ended           bool          // the request has ended
	received        int64         // bytes read
	waitTime        time.Duration // total time spent in reads after the first byte
	readErr         error         // error of the last read; io.EOF at the end of the body
}

func (b *body) Read(p []byte) (int, error) {
	p, err := b.before(p)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := b.Reader.Read(p)
	return b.after(n, err, time.Since(began))
}

// before sets the deadline for one read, and truncates p to the remaining permitted length and one
// byte more.
func (b *body) before(p []byte) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.ended:
		return p, http.ErrBodyReadAfterClose
	case b.readErr != nil:
		return p, b.readErr
	}
	if left := b.maxBytes - b.received + 1; b.maxBytes > 0 && int64(len(p)) > left {
		p = p[:left]
	}
	b.reading = true
	if b.responseStarted || b.timeout == 0 {
		return p, nil
	}
	within := b.timeout
	if !b.isStream && b.received > 0 {
		within = min(within, bodyRateTolerance+time.Duration(b.received)*(time.Second/minBodyRate)-b.waitTime)
	}
	_ = b.deadlines.SetReadDeadline(time.Now().Add(within)) // without support for deadlines there is no connection to protect
	return p, nil
}

// after records the result of a read and removes the deadline. There must be none between reads,
// because net/http reads in the background to detect that the client has disconnected.
func (b *body) after(n int, err error, elapsed time.Duration) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if b.received > 0 {
		b.waitTime += elapsed
	}
	b.received += int64(n)
	if b.maxBytes > 0 && b.received > b.maxBytes {
		n -= int(b.received - b.maxBytes)
		err = &http.MaxBytesError{Limit: b.maxBytes}
	}
	if err != nil && b.readErr == nil {
		b.readErr = err
	}
	if !b.ended && !b.responseStarted && b.timeout > 0 {
		_ = b.deadlines.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Trailer returns the trailer fields, which follow the end of the body.
func (b *body) Trailer() *http1.Fields { return b.trailer() }

// Stop makes the current Read and all later ones fail. It is called when the rest of the body is
// not needed.
func (b *body) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readErr == nil {
		b.readErr = http.ErrBodyReadAfterClose
	}
	if b.reading && !b.ended && b.deadlines != nil {
		b.responseStarted = true // so that after does not remove this deadline
		_ = b.deadlines.SetReadDeadline(time.Unix(1, 0))
	}
}

// limit sets the maximum length of the body; 0 means no limit.
func (b *body) limit(maxBytes int64) {
	if b != nil {
		b.maxBytes = maxBytes
	}
}

// markResponseStarted records that the response has begun.
func (b *body) markResponseStarted() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading && !b.responseStarted && b.timeout > 0 {
		_ = b.deadlines.SetReadDeadline(time.Time{})
	}
	b.responseStarted = true
}

// timedOut reports whether the body timed out.
func (b *body) timedOut() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.readErr, os.ErrDeadlineExceeded)
}

// end is called when the handler returns. The deadlines of the stream must not be set after that.
func (b *body) end() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
