package http1

import "sync"

const (
	headSize = 8 << 10  // what most heads, and small messages, fit into
	bulkSize = 32 << 10 // what bodies are read into
)

// A memory lends buffers. What is given back is used for other messages at once,
// so nothing may point into it any more; with the build tag http1poison it is
// overwritten instead, and never used again.
type memory struct {
	heads, bulks sync.Pool
}

func (m *memory) head() []byte {
	if b, ok := m.heads.Get().(*[headSize]byte); ok {
		return b[:]
	}
	return make([]byte, headSize)
}

func (m *memory) bulk() []byte {
	if b, ok := m.bulks.Get().(*[bulkSize]byte); ok {
		return b[:]
	}
	return make([]byte, bulkSize)
}

// giveBack takes a buffer of either size back, and lets go of one that has grown.
func (m *memory) giveBack(b []byte) {
	if poisoned {
		poison(b)
		return
	}
	b = b[:cap(b)]
	switch len(b) {
	case headSize:
		m.heads.Put((*[headSize]byte)(b))
	case bulkSize:
		m.bulks.Put((*[bulkSize]byte)(b))
	}
}

// Discard ends the use of b, which held something that lived no longer than an
// exchange, and returns what may be used in its place: b, emptied; with the build tag
// http1poison nothing, for b is overwritten.
func Discard(b []byte) []byte {
	if poisoned {
		poison(b)
		return nil
	}
	return b[:0]
}

// poison makes whoever still reads b notice.
func poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xDB
	}
}
