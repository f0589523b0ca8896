package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

var (
	// ErrProtocol reports that a connection received data that is not valid RESP2 or
	// RESP3. The connection cannot be used any more.
	ErrProtocol = errors.New("not the protocol of redis")
	// ErrReply reports a valid reply that is not what the command should return.
	ErrReply = errors.New("reply of an unknown shape")
)

const (
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

// A Reader reads replies from a connection. Its buffer has room for the longest line.
type Reader struct{ in *bufio.Reader }

// NewReader returns a Reader of src.
func NewReader(src io.Reader) *Reader { return &Reader{bufio.NewReaderSize(src, maxLine+len("\n"))} }

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
	for ; n > 0; n-- {
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
	if _, err := r.in.Discard(int(n)); err != nil {
		return err
	}
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
	line, err := r.in.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return nil, fmt.Errorf("%w: a line longer than %d bytes", ErrProtocol, maxLine)
	case err == io.EOF && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	text, isCRLF := bytes.CutSuffix(line, []byte("\r\n"))
	if !isCRLF || bytes.IndexByte(text, '\r') >= 0 {
		return nil, fmt.Errorf("%w: a line that ends with LF alone", ErrProtocol)
	}
	return text, nil
}

// number parses an integer of at most 19 digits. Most are short and have no sign.
func number(text []byte) (n int64, ok bool) {
	for _, c := range text {
		digit := c - '0'
		if digit > 9 || len(text) > 18 {
			if len(bytes.TrimLeft(text, "+-")) > 19 {
				return 0, false
			}
			n, err := strconv.ParseInt(string(text), 10, 64)
			return n, err == nil
		}
		n = 10*n + int64(digit)
	}
	return n, len(text) > 0
}
