package body

import (
	"io"
	"net/http"
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

// A Deadliner sets the deadline for reading. http.ResponseController is one.
type Deadliner interface {
	SetReadDeadline(t time.Time) error
}

// A Reader is the request body as read from the client. Read returns os.ErrDeadlineExceeded if the
// client sends nothing for the duration wait, or sends below minBodyRate for too long;
// *http.MaxBytesError if the body is too long; and http.ErrBodyReadAfterClose after the request has
// ended. Only the time spent waiting for the client counts, so a slow upstream does not cause a
// timeout. After the response has begun there is no deadline: client and upstream may then exchange
// data at any rate. A Reader is safe for concurrent use.
type Reader struct {
	From      io.Reader
	Deadlines Deadliner
	Timeout   time.Duration        // maximum time without progress; 0 for no limit
	IsStream  bool                 // a stream of messages, for which no minimum rate applies
	Fields    func() *http1.Fields // returns the trailer fields; valid after the end of the body

	maxBytes int64 // maximum length in bytes; 0 for no limit

	mu              sync.Mutex    // guards what follows; never held while reading
	reading         bool          // a Read is waiting for the client
	responseStarted bool          // the response has begun; there are no deadlines
	ended           bool          // the request has ended
	received        int64         // bytes read
	waitTime        time.Duration // total time spent in reads after the first byte
	readErr         error         // error of the last read; io.EOF at the end of the body
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	p, err := r.before(p)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := r.From.Read(p)
	return r.after(n, err, time.Since(began))
}

// before sets the deadline for one read, and truncates p to the remaining permitted length and one
// byte more.
func (r *Reader) before(p []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		return p, http.ErrBodyReadAfterClose
	case r.readErr != nil:
		return p, r.readErr
	}
	if left := r.maxBytes - r.received + 1; r.maxBytes > 0 && int64(len(p)) > left {
		p = p[:left]
	}
	r.reading = true
	if r.responseStarted || r.Timeout == 0 {
		return p, nil
	}
	within := r.Timeout
	if !r.IsStream && r.received > 0 {
		within = min(within, bodyRateTolerance+time.Duration(r.received)*(time.Second/minBodyRate)-r.waitTime)
	}
	_ = r.Deadlines.SetReadDeadline(time.Now().Add(within)) // without support for deadlines there is no connection to protect
	return p, nil
}

// after records the result of a read and removes the deadline. There must be none between reads,
// because net/http reads in the background to detect that the client has disconnected.
func (r *Reader) after(n int, err error, elapsed time.Duration) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = false
	if r.received > 0 {
		r.waitTime += elapsed
	}
	r.received += int64(n)
	if r.maxBytes > 0 && r.received > r.maxBytes {
		n -= int(r.received - r.maxBytes)
		err = &http.MaxBytesError{Limit: r.maxBytes}
	}
	if err != nil && r.readErr == nil {
		r.readErr = err
	}
	if !r.ended && !r.responseStarted && r.Timeout > 0 {
		_ = r.Deadlines.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Trailer returns the trailer fields, which follow the end of the body.
func (r *Reader) Trailer() *http1.Fields { return r.Fields() }

// Stop makes the current Read and all later ones fail. It is called when the rest of the body is
// not needed.
func (r *Reader) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readErr == nil {
		r.readErr = http.ErrBodyReadAfterClose
	}
	if r.reading && !r.ended && r.Deadlines != nil {
		r.responseStarted = true // so that after does not remove this deadline
		_ = r.Deadlines.SetReadDeadline(time.Unix(1, 0))
	}
}

// Limit sets the maximum length of the body; 0 means no limit.
func (r *Reader) Limit(maxBytes int64) {
	if r != nil {
		r.maxBytes = maxBytes
	}
}

// MarkResponseStarted records that the response has begun.
func (r *Reader) MarkResponseStarted() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reading && !r.responseStarted && r.Timeout > 0 {
		_ = r.Deadlines.SetReadDeadline(time.Time{})
	}
	r.responseStarted = true
}

// End is called when the handler returns. The deadlines of the stream must not be set after that.
func (r *Reader) End() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}
