package wire

import (
	"bytes"
	"fmt"
	"net"
	"syscall"
)

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
