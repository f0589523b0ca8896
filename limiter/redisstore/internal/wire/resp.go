package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

var (
	// ErrProtocol reports that a connection received data that is not valid RESP2 or
	// RESP3. The connection cannot be used any more.
	ErrProtocol = errors.New("not the protocol of redis")
	// ErrReply reports a valid reply that is not what the command should return.
	ErrReply = errors.New("reply of an unknown shape")
)

const (
	readBuffer = 8 << 10
	// maxLine is the maximum length of a line: a header, a number or an error.
	maxLine = 64 << 10
	// maxElements is the maximum number of elements of a list.
	maxElements = 1 << 20
)

// A serverError is an error reply of Redis. It is a redis.Error.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (serverError) RedisError() {}

// A Reply is a list of integers, one integer, or an error. Ints is reused by the next
// reply.
type Reply struct {
	Ints []int64
	Err  error // a redis.Error, or ErrReply if the reply is something else
}

// A Reader reads replies from a connection. It buffers only data that was received
// and not read yet.
type Reader struct {
	src  io.Reader
	buf  []byte
	r, w int // buf[r:w] is unread
}

// NewReader returns a Reader of src.
func NewReader(src io.Reader) *Reader {
	return &Reader{src: src, buf: make([]byte, readBuffer)}
}

// Read reads the next reply into p, skipping push messages. After an error the reader
// cannot be used any more.
func (r *Reader) Read(p *Reply) error {
	p.Ints, p.Err = p.Ints[:0], nil
	for {
		line, err := r.line()
		if err != nil {
			return err
		}
		switch line[0] {
		case '-':
			p.Err = serverError(line[1:])
			return nil
		case '*':
			return r.list(p, line)
		case ':':
			n, ok := number(line[1:])
			if !ok {
				return fmt.Errorf("%w: %.40q", ErrProtocol, line)
			}
			p.Ints = append(p.Ints, n)
			return nil
		case '>':
			err = r.skip(line)
		case '|': // attribute of the following reply
			var more int64
			if more, err = r.skipOne(line); err == nil {
				err = r.skipAll(more - 1)
			}
		default:
			p.Err = ErrReply
			return r.skip(line)
		}
		if err != nil {
			return err
		}
	}
}

// list reads the elements of a list.
func (r *Reader) list(p *Reply, header []byte) error {
	n, ok := number(header[1:])
	if !ok || n < -1 || n > maxElements {
		return fmt.Errorf("%w: %.40q", ErrProtocol, header)
	}
	if n == -1 {
		p.Err = ErrReply
	}
	for range n {
		if v, ok := r.count(); ok {
			p.Ints = append(p.Ints, v)
			continue
		}
		line, err := r.line()
		if err != nil {
			return err
		}
		if line[0] != ':' {
			p.Err = ErrReply
			if err := r.skip(line); err != nil {
				return err
			}
			continue
		}
		v, ok := number(line[1:])
		if !ok {
			return fmt.Errorf("%w: %.40q", ErrProtocol, line)
		}
		p.Ints = append(p.Ints, v)
	}
	return nil
}

// count reads an element if it is what most are: an integer without a sign, of at most 18
// digits, that was received as a whole. Otherwise it reads nothing.
func (r *Reader) count() (n int64, ok bool) {
	b := r.buf[r.r:r.w]
	if len(b) < len(":0\r\n") || b[0] != ':' {
		return 0, false
	}
	for i := 1; i < min(len(b)-1, 20); i++ {
		if digit := b[i] - '0'; digit <= 9 {
			n = 10*n + int64(digit)
			continue
		}
		if i == 1 || b[i] != '\r' || b[i+1] != '\n' {
			return 0, false
		}
		r.r += i + 2
		return n, true
	}
	return 0, false
}

// skip skips the value with this header, at any depth.
func (r *Reader) skip(header []byte) error {
	more, err := r.skipOne(header)
	if err != nil {
		return err
	}
	return r.skipAll(more)
}

// skipAll skips n values.
func (r *Reader) skipAll(n int64) error {
	for n > 0 {
		if n > 2*maxElements {
			return fmt.Errorf("%w: a reply of more than %d parts", ErrProtocol, 2*maxElements)
		}
		header, err := r.line()
		if err != nil {
			return err
		}
		more, err := r.skipOne(header)
		if err != nil {
			return err
		}
		n += more - 1
	}
	return nil
}

// skipOne skips the value with this header, except for the values that it contains; it
// returns how many those are.
func (r *Reader) skipOne(header []byte) (more int64, err error) {
	if _, ok := number(header[1:]); header[0] == ':' && !ok {
		return 0, fmt.Errorf("%w: %.40q", ErrProtocol, header)
	}
	more, text, err := announced(header)
	if err != nil || text == 0 {
		return more, err
	}
	return 0, r.text(text - 2)
}

// text skips n bytes and the following line end.
func (r *Reader) text(n int64) error {
	for have := int64(r.w - r.r); n > have; have = int64(r.w - r.r) {
		n -= have
		r.r = r.w
		if err := r.fill(); err != nil {
			return err
		}
	}
	r.r += int(n)
	end, err := r.line0()
	if err == nil && len(end) != 0 {
		err = fmt.Errorf("%w: a text longer than it says", ErrProtocol)
	}
	return err
}

// line returns the next line, without its end; it must not be empty. It is valid until
// the next call.
func (r *Reader) line() ([]byte, error) {
	line, err := r.line0()
	if err == nil && len(line) == 0 {
		err = fmt.Errorf("%w: an empty line", ErrProtocol)
	}
	return line, err
}

// line0 is like line, but the line may be empty.
func (r *Reader) line0() ([]byte, error) {
	for searched := 0; ; {
		i := bytes.IndexByte(r.buf[r.r+searched:r.w], '\n')
		if searched+max(i, 0) > maxLine {
			return nil, fmt.Errorf("%w: a line longer than %d bytes", ErrProtocol, maxLine)
		}
		if i >= 0 {
			line := r.buf[r.r : r.r+searched+i]
			r.r += searched + i + 1
			n := len(line) - 1
			if n < 0 || line[n] != '\r' || bytes.IndexByte(line[:n], '\r') >= 0 {
				return nil, fmt.Errorf("%w: a line that ends with LF alone", ErrProtocol)
			}
			return line[:n], nil
		}
		searched = r.w - r.r
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more. Where nothing is kept the buffer is that of the beginning again,
// however long the lines before were.
func (r *Reader) fill() error {
	switch {
	case r.r == r.w:
		r.r, r.w = 0, 0
		if len(r.buf) > readBuffer {
			r.buf = make([]byte, readBuffer)
		}
	case r.w == len(r.buf) && r.r > 0:
		r.r, r.w = 0, copy(r.buf, r.buf[r.r:r.w])
	case r.w == len(r.buf):
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.w:])
		r.w += n
		if n > 0 {
			return nil
		}
		if err == io.EOF && r.r < r.w {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// number parses an integer.
func number(text []byte) (int64, bool) {
	digits := text
	if len(text) > 0 && (text[0] == '-' || text[0] == '+') {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + uint64(c-'0')
	}
	if text[0] == '-' {
		return -int64(n), n <= -math.MinInt64
	}
	return int64(n), n <= math.MaxInt64
}
