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

// A clock sets the deadline for reading. http.ResponseController is one.
type clock interface {
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
	clock   clock
	wait    time.Duration        // maximum time without progress; 0 for no limit
	most    int64                // maximum length in bytes; 0 for no limit
	stream  bool                 // a stream of messages, for which no minimum rate applies
	trailer func() *http1.Fields // returns the trailer fields; valid after the end of the body

	mu      sync.Mutex    // guards what follows; never held while reading
	reading bool          // a Read is waiting for the client
	free    bool          // the response has begun; there are no deadlines
	over    bool          // the request has ended
	got     int64         // bytes read
	waited  time.Duration // total time spent in reads after the first byte
	failed  error         // error of the last read; io.EOF at the end of the body
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
	case b.over:
		return p, http.ErrBodyReadAfterClose
	case b.failed != nil:
		return p, b.failed
	}
	if left := b.most - b.got + 1; b.most > 0 && int64(len(p)) > left {
		p = p[:left]
	}
	b.reading = true
	if b.free || b.wait == 0 {
		return p, nil
	}
	within := b.wait
	if !b.stream && b.got > 0 {
		within = min(within, bodyRateTolerance+time.Duration(b.got)*(time.Second/minBodyRate)-b.waited)
	}
	_ = b.clock.SetReadDeadline(time.Now().Add(within)) // without support for deadlines there is no connection to protect
	return p, nil
}

// after records the result of a read and removes the deadline. There must be none between reads,
// because net/http reads in the background to detect that the client has disconnected.
func (b *body) after(n int, err error, took time.Duration) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	if b.got > 0 {
		b.waited += took
	}
	b.got += int64(n)
	if b.most > 0 && b.got > b.most {
		n -= int(b.got - b.most)
		err = &http.MaxBytesError{Limit: b.most}
	}
	if err != nil && b.failed == nil {
		b.failed = err
	}
	if !b.over && !b.free && b.wait > 0 {
		_ = b.clock.SetReadDeadline(time.Time{})
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
	if b.failed == nil {
		b.failed = http.ErrBodyReadAfterClose
	}
	if b.reading && !b.over && b.clock != nil {
		b.free = true // so that after does not remove this deadline
		_ = b.clock.SetReadDeadline(time.Unix(1, 0))
	}
}

// limit sets the maximum length of the body; 0 means no limit.
func (b *body) limit(most int64) {
	if b != nil {
		b.most = most
	}
}

// answered records that the response has begun.
func (b *body) answered() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading && !b.free && b.wait > 0 {
		_ = b.clock.SetReadDeadline(time.Time{})
	}
	b.free = true
}

// late reports whether the body timed out.
func (b *body) late() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.failed, os.ErrDeadlineExceeded)
}

// end is called when the handler returns. The deadlines of the stream must not be set after that.
func (b *body) end() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
