package http1

import (
	"cmp"
	"time"
)

// Limits bound the size of a message. A message that exceeds a limit is refused, never
// truncated, except that interim responses and trailer sections beyond their limits are
// dropped. A field that is 0 has its default.
type Limits struct {
	Target        int // bytes of a request target; default 8 KiB
	Head          int // bytes of a head, including the start line; default 32 KiB
	Fields        int // field lines of a head; default 128
	Trailer       int // bytes of a trailer section; default 8 KiB, at most 16 KiB
	TrailerFields int // field lines of a trailer section; default 32
	ChunkLine     int // bytes of a chunk line, including extensions; default 256, for responses 4 KiB
	ChunkOverhead int // bytes of chunk lines in excess of the data; default 16 KiB, for responses 64 KiB
	Interim       int // 1xx responses that are forwarded, the rest is dropped; default 100
	Drain         int // bytes of an unread request body that are discarded to keep the connection; default 256 KiB
	EmptyLines    int // empty lines before a request; default 4

	lenient bool // the messages are responses
}

// maxHead is the largest configurable size of a head. Offsets into a head have 32 bits.
const maxHead = 1 << 24

// forResponses returns the limits of messages that are read from upstreams.
func (l Limits) forResponses() Limits {
	l.ChunkLine, l.ChunkOverhead = cmp.Or(l.ChunkLine, 4<<10), cmp.Or(l.ChunkOverhead, 64<<10)
	l.lenient = true
	return l.withDefaults()
}

// withDefaults replaces zero fields with their defaults.
func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field     *int
		otherwise int
	}{
		{&l.Target, 8 << 10}, {&l.Head, 32 << 10}, {&l.Fields, 128}, {&l.Trailer, 8 << 10}, {&l.TrailerFields, 32},
		{&l.ChunkLine, 256}, {&l.ChunkOverhead, 16 << 10}, {&l.Interim, 100}, {&l.Drain, 256 << 10}, {&l.EmptyLines, 4},
	} {
		if *d.field <= 0 {
			*d.field = d.otherwise
		}
	}
	l.Head, l.Trailer = min(l.Head, maxHead), min(l.Trailer, BodyBufferSize/2)
	return l
}

// Timeouts bound waiting for a client. A field that is 0 means no timeout.
type Timeouts struct {
	Header time.Duration // for a whole head, from its first byte or from the start of the connection; default Idle
	Body   time.Duration // between reads of a body; a body that takes longer in total must also reach minBodyRate
	Write  time.Duration // for each write to the client
	Idle   time.Duration // between requests
}

// header returns the timeout for a head.
func (t *Timeouts) header() time.Duration { return cmp.Or(t.Header, t.Idle) }

const (
	// minBodyRate is the average rate in bytes per second that a request body must
	// reach once it has taken longer than Timeouts.Body. A client that sends one byte
	// now and then (a slow-body attack) would otherwise never time out.
	minBodyRate = 500
	// lingerTimeout is how long the server reads on from a client that keeps sending after
	// the response that ends its connection; see conn.linger.
	lingerTimeout = 30 * time.Second
	// lingerIdle is how long it waits for such a client to send more, and how long it
	// reads on while it is being shut down.
	lingerIdle = time.Second
)
