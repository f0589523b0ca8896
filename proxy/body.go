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
	// minBodyRate is how many bytes a second the body of a request must bring on
	// average from its first byte on: a client that sends one byte now and then does
	// make progress, and would never end.
	minBodyRate = 500
	// bodyRateTolerance is what a body may be late by all in all: a packet that is lost is
	// sent again after a second, and then after two more.
	bodyRateTolerance = 5 * time.Second
)

// A clock sets the deadline for reading; http.ResponseController is one.
type clock interface {
	SetReadDeadline(t time.Time) error
}

// A body is the client's body. Reading it fails with os.ErrDeadlineExceeded when
// the client sends nothing for the length of wait, or too little for long; with
// *http.MaxBytesError when it is longer than it may be; and with
// http.ErrBodyReadAfterClose when the request has ended, whoever still reads
// then. Only the time spent waiting for the client counts, so a slow upstream
// costs no client its body; and once the response has begun, none does: then the
// two may talk at whatever pace they like. It is safe for concurrent use.
type body struct {
	io.Reader
	clock   clock
	wait    time.Duration        // without progress; 0 for any
	most    int64                // bytes; 0 for any
	stream  bool                 // its messages may be few and far between
	trailer func() *http1.Fields // once all has been read

	mu      sync.Mutex    // guards what follows; never held while reading
	reading bool          // somebody waits for the client
	free    bool          // the response has begun
	over    bool          // the request has ended
	got     int64         // bytes
	waited  time.Duration // for all but the first of them
	failed  error         // how reading ended; io.EOF is its good end
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

// before sets the deadline for one read, and cuts p to what may still come and
// one byte more.
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
	_ = b.clock.SetReadDeadline(time.Now().Add(within)) // without deadlines there is no connection to hold
	return p, nil
}

// after takes note of what a read brought. Between reads there is no deadline:
// net/http reads too, to learn that the client has left.
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

// Trailer are the trailer fields, which come with the end of the body.
func (b *body) Trailer() *http1.Fields { return b.trailer() }

// Stop ends reading, also a read that waits: nobody wants more of the body.
func (b *body) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed == nil {
		b.failed = http.ErrBodyReadAfterClose
	}
	if b.reading && !b.over && b.clock != nil {
		b.free = true // nothing disarms this one
		_ = b.clock.SetReadDeadline(time.Unix(1, 0))
	}
}

// limit bounds how long the body may be; 0 is any length.
func (b *body) limit(most int64) {
	if b != nil {
		b.most = most
	}
}

// answered says that the response has begun.
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

// late reports whether the client did not send the body in time.
func (b *body) late() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Is(b.failed, os.ErrDeadlineExceeded)
}

// end is called when the handler returns: the stream is no longer this request's to
// set deadlines for.
func (b *body) end() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}
