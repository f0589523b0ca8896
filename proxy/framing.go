package proxy

import (
	"bytes"
	"sync/atomic"
)

// A framing reads along with the requests of one connection and notices what
// net/http does not tell its handlers: a header with both Content-Length and
// Transfer-Encoding, or with Transfer-Encoding in HTTP/1.0. It also drops empty
// lines before the first request. It looks at lines, not at messages, so that a
// body made of such lines is taken for a header; that costs the client its
// connection and nothing else.
type framing struct {
	faulty atomic.Bool // a header was seen that two servers could read in two ways
	begun  bool        // there was something
	past   bool        // and the first line is whole
	off    bool        // and HTTP/2's
	older  bool        // the last header was of HTTP/1.0

	line   [len("transfer-encoding:")]byte // the beginning of the line that is being read
	n      int                             // so much of it
	length bool                            // this header has Content-Length
	coding bool                            // and Transfer-Encoding
	old    bool                            // and its request line ends with HTTP/1.0
	tail   [len("HTTP/1.0")]byte           // the end of the line that is being read
}

// skip drops empty lines before the first request (RFC 9112 section 2.2) and
// returns how many bytes of p are left.
func (f *framing) skip(p []byte) int {
	if f.begun {
		return len(p)
	}
	rest := bytes.TrimLeft(p, "\r\n")
	f.begun = len(rest) > 0
	return copy(p, rest)
}

// see takes note of what was read.
func (f *framing) see(p []byte) {
	for len(p) > 0 && !f.off {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			f.keep(p)
			return
		}
		f.keep(p[:end])
		f.judge()
		p = p[end+1:]
	}
}

// keep adds to the beginning and to the end of the line.
func (f *framing) keep(p []byte) {
	f.n += copy(f.line[f.n:], p)
	for _, c := range p[max(len(p)-len(f.tail)-1, 0):] {
		if c != '\r' {
			copy(f.tail[:], f.tail[1:])
			f.tail[len(f.tail)-1] = c
		}
	}
}

// judge looks at a line that is whole. An empty one ends a header.
func (f *framing) judge() {
	line, tail := bytes.TrimRight(f.line[:f.n], "\r"), f.tail
	first := !f.past
	f.n, f.tail, f.past = 0, [len(f.tail)]byte{}, true
	switch {
	case len(line) == 0:
		if f.coding && (f.length || f.old) {
			f.faulty.Store(true)
		}
		f.older = f.old
		f.length, f.coding, f.old = false, false, false
	case begins(line, "content-length:"):
		f.length = true
	case begins(line, "transfer-encoding:"):
		f.coding = true
	case string(tail[:]) == "HTTP/1.0":
		f.old = true
	case first && string(line) == "PRI * HTTP/2.0":
		f.off = true
	}
}

func begins(line []byte, name string) bool {
	return len(line) >= len(name) && bytes.EqualFold(line[:len(name)], []byte(name))
}
