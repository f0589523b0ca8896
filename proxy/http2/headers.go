package http2

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/proxy/http1"
)

const (
	// maxBlock is how many times the maximum size of a header list a header block may
	// use in frames, and maxContinuations the number of these. A client that sends more
	// loses its connection: a block has to be decoded to its end, even if it is refused
	// (CONTINUATION flood, CVE-2023-45288).
	maxBlock         = 2
	maxContinuations = 64
	// fieldOverhead is added to the length of each field line (RFC 9113 section 6.5.2).
	fieldOverhead = 32
)

// A headerBlock is the header block that is being received: a HEADERS frame and the
// CONTINUATION frames after it.
type headerBlock struct {
	open      bool    // more CONTINUATION frames follow
	stream    *Stream // whose request begins; nil if none does
	trailerOf uint32  // the stream whose trailer section this is; 0 for none
	endStream bool
	size      int // of the header list
	lines     int
	received  int // bytes in frames
	frames    int // CONTINUATION frames
	err       *http1.Error
	fragments []byte // of a block of several frames
	cookie    []byte // the values of Cookie, which are sent in one line in HTTP/1.1 (RFC 9113 section 8.2.3)
}

// onHeaders begins a header block.
func (c *conn) onHeaders(f *http2.HeadersFrame) error {
	id := f.StreamID
	if id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	b := &c.block
	*b = headerBlock{open: !f.HeadersEnded(), endStream: f.StreamEnded(), cookie: keep(b.cookie, keptHeader)}
	c.mu.Lock()
	s, known := c.streams[id]
	var err error
	switch {
	case known:
		b.trailerOf = id // its handler may end before the block does
		err = s.beginTrailerLocked(f)
	case id <= c.lastID && !c.resetByUs.has(id):
		c.mu.Unlock()
		return http2.ConnectionError(http2.ErrCodeStreamClosed)
	case id <= c.lastID: // the trailer section of a stream that we have reset
	case c.refusesLocked():
		c.lastID = id
		c.resetByUs.add(id)
		err = http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	default:
		c.lastID = id
		b.stream = c.newStreamLocked(id)
	}
	c.mu.Unlock()
	if err == nil && f.HasPriority() && f.Priority.StreamDep == id {
		err = http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if err != nil {
		if b.stream != nil {
			c.releaseUnused(b.stream)
		}
		b.stream, b.trailerOf = nil, 0 // the block must still be decoded
	}
	c.decoder.SetEmitEnabled(b.stream != nil || b.trailerOf != 0)
	if b.open {
		c.headBegan = time.Now()
	}
	return cmp.Or(c.decodeBlock(f.HeaderBlockFragment()), err)
}

// onContinuation continues the header block. The Framer has checked that it belongs to
// the stream of the block.
func (c *conn) onContinuation(f *http2.ContinuationFrame) error {
	if c.block.frames++; c.block.frames > maxContinuations {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	c.block.open = !f.HeadersEnded()
	return c.decodeBlock(f.HeaderBlockFragment())
}

// decodeBlock receives a part of the header block. At its end it decodes the block, as a whole because
// the decoder would keep memory for parts, and begins the request.
func (c *conn) decodeBlock(fragment []byte) error {
	b := &c.block
	if b.received += len(fragment); b.received > maxBlock*c.server.MaxHeader {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if b.open || b.fragments != nil {
		b.fragments = append(b.fragments, fragment...)
		fragment = b.fragments
	}
	if b.open {
		return nil
	}
	if err := c.decode(fragment); err != nil {
		return http2.ConnectionError(http2.ErrCodeCompression)
	}
	s := b.stream
	b.stream, b.fragments = nil, nil
	switch {
	case b.trailerOf != 0:
		return c.endTrailer(b.trailerOf)
	case s == nil:
		return nil
	}
	s.completeRequest(b)
	b.cookie = keep(b.cookie, keptHeader)
	c.received(s)
	return nil
}

// decode decodes a whole header block. The decoder keeps a reference to it until the next one, so that a
// large block is copied into a buffer that connections share.
func (c *conn) decode(block []byte) error {
	if len(block) > keptFramer {
		shared := c.server.blocks.Get().(*[]byte)
		block = append(*shared, block...)
		defer func() {
			*shared = reuse.Memory(block)
			c.server.blocks.Put(shared)
		}()
	}
	_, err := c.decoder.Write(block)
	return cmp.Or(err, c.decoder.Close())
}

// onField receives a field line from the decoder.
func (c *conn) onField(f hpack.HeaderField) {
	b := &c.block
	b.lines++
	if b.size += len(f.Name) + len(f.Value) + fieldOverhead; b.size > c.server.MaxHeader {
		b.err = http1.ErrTooLarge
	} else if b.lines > c.server.MaxFields {
		b.err = http1.ErrTooManyFields
	}
	if b.err != nil && b.err.Status == http1.ErrTooLarge.Status {
		c.decoder.SetEmitEnabled(false) // the rest is decoded only for the state of the decoder
		return
	}
	err := error(nil)
	switch {
	case b.trailerOf != 0:
		err = c.trailer.AddHTTP2(f.Name, f.Value) // there are no pseudo-header fields
	case strings.HasPrefix(f.Name, ":"):
		err = b.stream.setPseudo(f)
	default:
		b.stream.hasRegular = true
		err = b.addField(f)
	}
	if err != nil && b.err == nil {
		b.err, _ = err.(*http1.Error) //nolint:errorlint // they are never wrapped
	}
}

// addField adds a field line to the request.
func (b *headerBlock) addField(f hpack.HeaderField) error {
	s := b.stream
	switch f.Name {
	case "cookie":
		if !http1.ValidValue(f.Value) || strings.Trim(f.Value, " \t") != f.Value {
			return http1.ErrFieldValue
		}
		if len(b.cookie) > 0 {
			b.cookie = append(b.cookie, "; "...)
		}
		b.cookie = append(b.cookie, f.Value...)
		return nil
	case "host":
		return s.setHost(f.Value)
	}
	if err := s.Fields.AddHTTP2(f.Name, f.Value); err != nil {
		return err
	}
	switch n := s.Fields.AddedName(); {
	case ofConnection>>n&1 != 0 && n != http1.Other, n == http1.TE && f.Value != "trailers":
		return http1.ErrConnectionField
	case n == http1.ContentLength:
		return s.setLength(f.Value)
	case n == http1.Expect && !strings.EqualFold(f.Value, "100-continue"):
		return http1.ErrExpectation
	}
	return nil
}

// endTrailer ends the request body of a stream, after its trailer section.
func (c *conn) endTrailer(id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.trailer = c.trailer.Emptied(keptHeader) }()
	s := c.streams[id]
	switch {
	case s == nil: // it has ended meanwhile
		return nil
	case c.block.err != nil:
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	c.trailer.DropForbiddenTrailers()
	s.trailer, c.trailer = c.trailer, s.trailer
	return s.endBodyLocked()
}

// The header blocks that are sent refer only to the static table of HPACK, as those of
// nginx and HAProxy do: maintaining a dynamic table costs more than all else that a
// response needs, and a table that a client fills by its requests can be probed for
// secrets (RFC 7541 section 7.1).
const (
	literal      = 0x00 // literal field without indexing (RFC 7541 section 6.2.2)
	neverIndexed = 0x10 // literal field that no proxy may index (RFC 7541 section 6.2.3)
	indexed      = 0x80 // indexed field (RFC 7541 section 6.1)
)

// A nameTable holds the beginning of a field line for each well-known name: its index in
// the static table, or its spelling.
type nameTable [64]string

func newNameTable() (t nameTable) {
	static := map[string]int{ // RFC 7541 appendix A
		"accept": 19, "accept-encoding": 16, "accept-language": 17, "age": 21, "authorization": 23, "cache-control": 24,
		"content-encoding": 26, "content-length": 28, "content-range": 30, "content-type": 31, "cookie": 32, "date": 33,
		"etag": 34, "expect": 35, "host": 38, "last-modified": 44, "location": 46, "max-forwards": 47,
		"proxy-authenticate": 48, "proxy-authorization": 49, "referer": 51, "retry-after": 53, "server": 54,
		"set-cookie": 55, "user-agent": 58, "vary": 59, "via": 60, "www-authenticate": 61,
	}
	for n := http1.Other + 1; n <= http1.ProxyAuthorization; n++ {
		name := strings.ToLower(n.String())
		kind := byte(literal)
		if n == http1.SetCookie {
			kind = neverIndexed
		}
		if index := static[name]; index > 0 {
			t[n] = string(appendInt(nil, kind, 4, index))
		} else {
			t[n] = string(appendString([]byte{kind}, name))
		}
	}
	return t
}

// appendInt appends an integer whose first byte has a prefix of so many bits for it (RFC
// 7541 section 5.1). The other bits of that byte are those of first.
func appendInt(dst []byte, first byte, bits, i int) []byte {
	most := 1<<bits - 1
	if i < most {
		return append(dst, first|byte(i))
	}
	dst = append(dst, first|byte(most))
	for i -= most; i >= 0x80; i >>= 7 {
		dst = append(dst, byte(i)|0x80)
	}
	return append(dst, byte(i))
}

// appendString appends a string without Huffman coding (RFC 7541 section 5.2).
func appendString(dst []byte, s string) []byte {
	if len(s) < 0x7f {
		dst = append(dst, byte(len(s)))
	} else {
		dst = appendInt(dst, 0, 7, len(s))
	}
	return append(dst, s...)
}

// appendStatus appends the status, which has three digits.
func appendStatus(dst []byte, status int) []byte {
	const first = 8 // of those that the static table has
	known := [...]int{200, 204, 206, 304, 400, 404, 500}
	if i := slices.Index(known[:], status); i >= 0 {
		return append(dst, indexed|byte(first+i))
	}
	dst = append(dst, literal|first, 3)
	return strconv.AppendInt(dst, int64(status), 10)
}

// ofConnection is the set of fields that must not be sent over HTTP/2 (RFC 9113 section
// 8.2.2).
const ofConnection http1.NameSet = 1<<http1.Connection | 1<<http1.KeepAlive | 1<<http1.ProxyConnection |
	1<<http1.TransferEncoding | 1<<http1.Upgrade

// appendField appends a field line, unless it concerns only a connection. It returns
// ErrOutgoing if the line is not valid.
func (t *nameTable) appendField(dst []byte, f http1.Field) ([]byte, error) {
	if !http1.ValidValue(f.Value) {
		return dst, http1.ErrOutgoing
	}
	if f.ID != http1.Other {
		if ofConnection>>f.ID&1 != 0 {
			return dst, nil
		}
		return appendString(append(dst, t[f.ID]...), f.Value), nil
	}
	if !http1.ValidName(f.Name) {
		return dst, http1.ErrOutgoing
	}
	dst = appendInt(append(dst, literal), 0, 7, len(f.Name))
	for i := range len(f.Name) {
		c := f.Name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return appendString(dst, f.Value), nil
}
