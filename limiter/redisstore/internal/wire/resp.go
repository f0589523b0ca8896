package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
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
			return p.add(line)
		case '>':
			err = r.skip(line)
		case '|': // an attribute of the following reply, which is skipped as a map
			line[0] = '%'
			err = r.skip(line)
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
		switch {
		case err != nil:
		case line[0] == ':':
			err = p.add(line)
		default:
			p.Err = ErrReply
			err = r.skip(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds the integer on a line.
func (r *Reply) add(line []byte) error {
	n, ok := number(line[1:])
	if !ok {
		return fmt.Errorf("%w: %.40q", ErrProtocol, line)
	}
	r.Ints = append(r.Ints, n)
	return nil
}

// skip skips the value with this header, within the bounds of Bounded.
func (r *Reader) skip(header []byte) error {
	for open := (bounded{}); ; {
		if _, ok := number(header[1:]); header[0] == ':' && !ok {
			return fmt.Errorf("%w: %.40q", ErrProtocol, header)
		}
		err := open.header(header)
		if err == nil && open.text > 0 {
			err = r.text(open.text - 2)
		}
		if err != nil || open.depth == 0 {
			return err
		}
		if header, err = r.line(); err != nil {
			return err
		}
	}
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

const (
	// maxText is the maximum length of a text in a reply.
	maxText = 32 << 20
	// maxDepth is the maximum depth of lists in lists.
	maxDepth = 32
)

// Bounded returns c for a go-redis client, which allocates what a reply announces before it has
// arrived. A Read fails with ErrProtocol where a reply announces a text of more than 32 MiB, more
// than 2^20 elements, or lists in more than 32 others; the client closes the connection then.
func Bounded(c net.Conn) net.Conn {
	b := &bounded{Conn: c}
	if socket, ok := c.(syscall.Conn); ok {
		return boundedSocket{b, socket}
	}
	return b
}

// A bounded connection follows what is read. Its fields are guarded as reads are: one at a time.
type bounded struct {
	net.Conn
	text  int64           // bytes of a text that are still to come, with its line end
	line  []byte          // what has come of a line
	lists [maxDepth]int64 // values that are still to come, of each list that is open
	depth int             // number of open lists
	err   error
}

// A boundedSocket lets the client see whether its socket was closed while it was not used.
type boundedSocket struct {
	*bounded
	syscall.Conn
}

// unbounded returns the connection that Bounded got.
func unbounded(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *bounded:
		return c.Conn
	case boundedSocket:
		return c.bounded.Conn
	}
	return c
}

// Read implements net.Conn.
func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.Conn.Read(p)
	if b.err = b.follow(p[:n]); b.err != nil {
		return 0, b.err
	}
	return n, err
}

// follow checks what in announces.
func (b *bounded) follow(in []byte) error {
	for len(in) > 0 {
		if b.text > 0 {
			n := min(b.text, int64(len(in)))
			b.text, in = b.text-n, in[n:]
			continue
		}
		end := bytes.IndexByte(in, '\n')
		if len(b.line)+max(end, 0) > maxLine || end < 0 && len(b.line)+len(in) > maxLine {
			return fmt.Errorf("%w: a line longer than %d bytes", ErrProtocol, maxLine)
		}
		if end < 0 {
			b.line = append(b.line, in...)
			return nil
		}
		line := in[:end]
		if len(b.line) > 0 {
			line = append(b.line, line...)
		}
		if err := b.header(bytes.TrimSuffix(line, []byte("\r"))); err != nil {
			return err
		}
		b.line, in = b.line[:0], in[end+1:]
	}
	return nil
}

// header checks the line that a value begins with.
func (b *bounded) header(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: an empty line", ErrProtocol)
	}
	more, n, err := announced(line)
	if err != nil {
		return err
	}
	b.text = n
	if more > 0 {
		if b.depth == maxDepth {
			return fmt.Errorf("%w: lists in more than %d others", ErrProtocol, maxDepth)
		}
		total := more
		for _, n := range b.lists[:b.depth] {
			total += n
		}
		if total > 2*maxElements {
			return fmt.Errorf("%w: a reply of more than %d parts", ErrProtocol, 2*maxElements)
		}
		b.lists[b.depth] = more
		b.depth++
		return nil
	}
	for b.depth > 0 { // the last value of a list is the end of the list
		if b.lists[b.depth-1]--; b.lists[b.depth-1] > 0 {
			return nil
		}
		b.depth--
	}
	return nil
}

// announced returns how many values belong to the one with this header, and how many bytes of a text with its line end.
func announced(header []byte) (more, text int64, err error) {
	switch header[0] {
	case '+', '-', ',', '#', '_', '(', ':':
		return 0, 0, nil
	}
	n, ok := number(header[1:])
	if none := n == -1 && (header[0] == '$' || header[0] == '*'); none && ok {
		return 0, 0, nil
	}
	if ok && n >= 0 {
		switch header[0] {
		case '$', '!', '=':
			if n > maxText {
				return 0, 0, fmt.Errorf("%w: a text of %d bytes, more than %d", ErrProtocol, n, maxText)
			}
			return 0, n + 2, nil
		}
		if n > maxElements {
			return 0, 0, fmt.Errorf("%w: a list of %d elements, more than %d", ErrProtocol, n, maxElements)
		}
		switch header[0] {
		case '*', '~', '>':
			return n, 0, nil
		case '%':
			return 2 * n, 0, nil
		case '|': // an attribute is followed by the value it belongs to
			return 2*n + 1, 0, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: %.40q", ErrProtocol, header)
}
