// Package body reads request bodies: within deadlines and at a minimum rate, and as a whole within a
// common bound of memory. It knows no request.
package body

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/http1"
)

// ErrFull reports that buffered bodies use all the memory that is configured for them.
var ErrFull = errors.New("memory for request bodies exhausted")

const (
	// DefaultMax is the default of the maximum length of a body from which a key is read.
	DefaultMax = 64 << 10
	// initialBuffer is the size of the first buffer of a body that is long or of unknown length.
	initialBuffer = 4 << 10
	// bufferShare is the fraction of the memory, 1/bufferShare, that the bodies of one client
	// address may use, so that one address cannot use it all; and the fraction that is kept for
	// bodies that begin, so that long bodies of slow clients do not exclude short ones.
	bufferShare = 8
	// http2Buffer is what a stream of HTTP/2 holds while its body is read: a frame.
	http2Buffer = 16 << 10
)

// Budget limits the memory of all bodies that are buffered because a key is read from them. It
// counts the memory that their buffers take, whether or not it is filled, and that of the buffers
// through which they are read. It is safe for concurrent use.
type Budget struct {
	max     int64
	initial sync.Pool // buffers of initialBuffer bytes that were outgrown

	mu       sync.Mutex // guards what follows
	used     int64
	byClient map[netip.Prefix]int64 // bytes by client address; only addresses that use some
}

// NewBudget returns a Budget of maxBytes bytes.
func NewBudget(maxBytes int64) *Budget {
	return &Budget{max: maxBytes, byClient: map[netip.Prefix]int64{}}
}

// Reserve reserves n bytes for a body that has reserved own bytes before, and reports whether they
// were available. A single body of an address may exceed the share of the address. A body that has
// reserved nothing before may use the part that is kept for such bodies.
func (b *Budget) Reserve(client netip.Prefix, own, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	clientBytes, limit := b.byClient[client], b.max
	if own > 0 {
		limit -= b.max / bufferShare
	}
	if b.used+n > limit || clientBytes > own && clientBytes+n > b.max/bufferShare {
		return false
	}
	b.used += n
	b.byClient[client] = clientBytes + n
	return true
}

// Release releases n bytes that client has reserved.
func (b *Budget) Release(client netip.Prefix, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.byClient[client] -= n; b.byClient[client] <= 0 {
		delete(b.byClient, client)
	}
}

// InUse returns the number of reserved bytes.
func (b *Budget) InUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// newBuffer returns a buffer of size bytes.
func (b *Budget) newBuffer(size int64) []byte {
	if size == initialBuffer {
		if p, ok := b.initial.Get().(*[initialBuffer]byte); ok {
			return p[:0]
		}
	}
	return make([]byte, 0, size)
}

// recycle takes back a buffer that nobody else has seen.
func (b *Budget) recycle(buffer []byte) {
	if buffer = reuse.Memory(buffer); cap(buffer) == initialBuffer {
		b.initial.Put((*[initialBuffer]byte)(buffer[:initialBuffer]))
	}
}

// allocated returns how much memory the allocator takes for n bytes, or up to a quarter more: it has
// many sizes up to 32 KiB, among others the multiples of 4 KiB, and pages of 8 KiB beyond.
func allocated(n int64) int64 {
	const step, page = 4 << 10, 8 << 10
	switch {
	case n == 0:
		return 0
	case n <= 32<<10:
		return min(n+n/4+16, (n+step-1)/step*step)
	}
	return (n + page - 1) / page * page
}

// A Buffer holds one body. Memory is reserved as the body arrives, so that a mere announcement of a
// long body costs little.
type Buffer struct {
	Budget   *Budget
	Client   netip.Prefix // whose share is used
	reserved int64
	end      [1]byte // where the end of a body is read whose buffer is full
}

// ReadAll reads r to its end. Its length is announced, or -1, and maxBytes at most. The reader itself
// holds beside bytes, which are reserved as well. It returns ErrFull if no memory is left.
func (b *Buffer) ReadAll(r io.Reader, announced, maxBytes, beside int64) ([]byte, error) {
	if announced >= 0 {
		maxBytes = min(maxBytes, announced)
	}
	read := []byte{} // also of an empty body
	for {
		var n int
		var err error
		if int64(len(read)) == maxBytes {
			_, err = r.Read(b.end[:])
		} else {
			if len(read) == cap(read) {
				size := min(nextSize(int64(cap(read)), announced), maxBytes)
				if read, err = b.grow(read, size, beside); err != nil {
					return nil, err
				}
				beside = 0
			}
			n, err = r.Read(read[len(read):cap(read)])
			read = read[:len(read)+n]
		}
		switch {
		case errors.Is(err, io.EOF):
			return read, nil
		case err != nil:
			b.Budget.recycle(read)
			return nil, err
		}
	}
}

// nextSize returns the size of the buffer after one of size bytes, for a body of announced bytes, or of
// -1 if its length is unknown. Each one that is outgrown is garbage, so there are few: a body of the
// usual length that is announced has two.
func nextSize(size, announced int64) int64 {
	switch {
	case size == 0:
		return initialBuffer
	case size < DefaultMax && announced >= 0:
		return DefaultMax
	case size < DefaultMax:
		return 4 * size
	}
	return 2 * size
}

// grow returns a buffer of size bytes with what was read, and reserves more bytes besides.
func (b *Buffer) grow(read []byte, size, more int64) ([]byte, error) {
	more += allocated(size) - allocated(int64(cap(read)))
	if !b.Reserve(more) {
		b.Budget.recycle(read)
		return nil, ErrFull
	}
	grown := append(b.Budget.newBuffer(size), read...)
	b.Budget.recycle(read)
	return grown, nil
}

// Reserve reserves n bytes more, and reports whether they were available.
func (b *Buffer) Reserve(n int64) bool {
	if !b.Budget.Reserve(b.Client, b.reserved, n) {
		return false
	}
	b.reserved += n
	return true
}

// HTTP2Beside returns what a stream of HTTP/2 holds of a body with this length, -1 if it is unknown.
func HTTP2Beside(length int64) int64 {
	if length < 0 {
		return http2Buffer
	}
	return min(length, http2Buffer)
}

// Release releases the memory. The bytes that were read must not be used afterwards.
func (b *Buffer) Release() {
	if b.reserved > 0 {
		b.Budget.Release(b.Client, b.reserved)
		b.reserved = 0
	}
}

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
	_ = r.Deadlines.SetReadDeadline(time.Now().Add(within)) // if it fails, there is no connection to protect
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
