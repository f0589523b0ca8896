package http1

import "io"

// An input is what has been read from a connection and not used up yet. The head
// that is in work stays where it is until the exchange ends, since strings point
// into it; what follows goes behind it, or into a larger buffer if there is much.
type input struct {
	from   io.Reader
	memory *memory
	head   []byte // where the head lies
	bulk   []byte // the larger buffer, nil if there is none
	buf    []byte // the one of both that is read into
	base   int    // bytes of buf that must stay
	r, w   int    // what is unread is buf[r:w]
}

// open lends in a buffer to begin with.
func (in *input) open() {
	if in.buf != nil {
		return
	}
	if in.head == nil {
		in.head = in.memory.head()
	}
	in.buf, in.base, in.r, in.w = in.head, 0, 0, 0
}

func (in *input) unread() []byte { return in.buf[in.r:in.w] }

// fill reads more, at least one byte unless there is an error.
func (in *input) fill() error {
	if in.r == in.w {
		in.r, in.w = in.base, in.base
	}
	if in.w == len(in.buf) {
		return io.ErrShortBuffer // or reading would never bring anything
	}
	for {
		n, err := in.from.Read(in.buf[in.w:])
		in.w += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// growHead makes room for a head of which a part has been read, up to most bytes.
// Nothing may point into it yet.
func (in *input) growHead(most int) {
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	if in.w < len(in.buf) {
		return
	}
	larger := make([]byte, min(2*len(in.buf), max(most, len(in.buf))+headSize))
	copy(larger, in.buf)
	in.memory.giveBack(in.head)
	in.head, in.buf = larger, larger
}

// keepHead says that the first n unread bytes are the head that is in work.
func (in *input) keepHead(n int) {
	in.r += n
	in.base = in.r
}

// roomFor makes room behind the unread bytes for reading a body of which so many
// bytes are still to come, or an unknown number if it is negative.
func (in *input) roomFor(left int64) {
	if in.bulk != nil {
		if in.w == len(in.buf) && in.r > in.base {
			in.w = in.base + copy(in.buf[in.base:], in.buf[in.r:in.w])
			in.r = in.base
		}
		return
	}
	if room := int64(len(in.buf) - in.base); left >= 0 && left <= room {
		if in.w == len(in.buf) {
			in.w = in.base + copy(in.buf[in.base:], in.buf[in.r:in.w])
			in.r = in.base
		}
		return
	}
	in.bulk = in.memory.bulk()
	if more := in.w - in.r; more >= len(in.bulk) {
		in.bulk = make([]byte, 2*more) // behind a very long head
	}
	in.w = copy(in.bulk, in.buf[in.r:in.w])
	in.buf, in.base, in.r = in.bulk, 0, 0
}

// next ends the message that is in work: what is unread is the beginning of the
// next, and nothing may point into what was before.
func (in *input) next() {
	rest := in.unread()
	switch {
	case poisoned && len(rest) == 0:
		in.release()
		return
	case poisoned:
		moved := append(make([]byte, 0, max(headSize, len(rest))), rest...)
		in.release()
		in.head, in.buf, in.w = moved[:cap(moved)], moved[:cap(moved)], len(moved)
		return
	}
	if len(rest) == 0 && in.bulk == nil {
		in.base, in.r, in.w = 0, 0, 0
		return
	}
	if len(rest) > len(in.head) {
		in.memory.giveBack(in.head)
		in.head = make([]byte, len(rest))
	}
	n := copy(in.head, rest)
	if in.bulk != nil {
		in.memory.giveBack(in.bulk)
		in.bulk = nil
	}
	in.buf, in.base, in.r, in.w = in.head, 0, 0, n
}

// rest is release for what is kept, empty, to be used again: it keeps one buffer.
func (in *input) rest() {
	if poisoned || len(in.head) != headSize {
		in.release()
		return
	}
	if in.bulk != nil {
		in.memory.giveBack(in.bulk)
	}
	*in = input{memory: in.memory, head: in.head}
}

// release gives all buffers back.
func (in *input) release() {
	if in.bulk != nil {
		in.memory.giveBack(in.bulk)
	}
	if in.head != nil {
		in.memory.giveBack(in.head)
	}
	*in = input{from: in.from, memory: in.memory}
}
