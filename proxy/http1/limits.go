package http1

import "time"

// Limits bound what one message may be. A message beyond them is refused, never
// cut. The zero value of a field means its default.
type Limits struct {
	Target        int // bytes of a request target; 8 KiB
	Head          int // bytes of a head, start line included; 32 KiB
	Fields        int // lines of a head; 128
	Trailer       int // bytes of a trailer section, at most 16 KiB; 8 KiB
	TrailerFields int // lines of one; 32
	ChunkLine     int // bytes of a chunk line, extension included; 256
	ChunkOverhead int // bytes of chunk lines beyond as many as there are of data; 16 KiB
	Interim       int // 1xx responses before the final one; 8
	Drain         int // bytes of a body nobody wants that are read to keep its connection; 256 KiB
	EmptyLines    int // empty lines before a request; 4
}

// maxHead is the largest head that can be configured: offsets into it are kept
// in 32 bits.
const maxHead = 1 << 24

// withDefaults fills in what is zero.
func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field     *int
		otherwise int
	}{
		{&l.Target, 8 << 10}, {&l.Head, 32 << 10}, {&l.Fields, 128}, {&l.Trailer, 8 << 10}, {&l.TrailerFields, 32},
		{&l.ChunkLine, 256}, {&l.ChunkOverhead, 16 << 10}, {&l.Interim, 8}, {&l.Drain, 256 << 10}, {&l.EmptyLines, 4},
	} {
		if *d.field <= 0 {
			*d.field = d.otherwise
		}
	}
	l.Head, l.Trailer = min(l.Head, maxHead), min(l.Trailer, bodyBufferSize/2)
	return l
}

// Timeouts bound the waiting for a client. The zero value of a field means that
// there is no bound.
type Timeouts struct {
	Header time.Duration // for a whole head, from its first byte or the connection's beginning
	Body   time.Duration // without any of a body; beyond one of these it must also bring minBodyRate
	Write  time.Duration // to take a piece of what it is sent
	Idle   time.Duration // between requests
}

const (
	// minBodyRate is how many bytes a second a body must bring on average, beyond
	// one Timeouts.Body of grace: who sends one byte now and then does make
	// progress, and would never end.
	minBodyRate = 500
	// lingerTimeout is how long a connection that is about to end is kept for a client
	// that still sends: closing at once would reset it, and the reset destroys a
	// response that the client has not read yet (RFC 9112 section 9.6).
	lingerTimeout = time.Second
	// lingerBytes is how much is read meanwhile.
	lingerBytes = 256 << 10
)
