package http1

import "sync"

const (
	headBufferSize = 8 << 10  // what most heads, and small messages, fit into
	bodyBufferSize = 32 << 10 // what bodies are read into
)

// A bufferPool lends buffers. What is given back is used for other messages at once,
// so nothing may point into it any more; with the build tag http1poison it is
// overwritten instead, and never used again.
type bufferPool struct {
	heads, bodies sync.Pool
}

func (m *bufferPool) getHead() []byte {
	if b, ok := m.heads.Get().(*[headBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, headBufferSize)
}

func (m *bufferPool) getBody() []byte {
	if b, ok := m.bodies.Get().(*[bodyBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, bodyBufferSize)
}

// put takes a buffer of either size back, and lets go of one that has grown.
func (m *bufferPool) put(b []byte) {
	if poisoned {
		poison(b)
		return
	}
	b = b[:cap(b)]
	switch len(b) {
	case headBufferSize:
		m.heads.Put((*[headBufferSize]byte)(b))
	case bodyBufferSize:
		m.bodies.Put((*[bodyBufferSize]byte)(b))
	}
}

// RecycleBuffer ends the use of b, which held something that lived no longer than an
// exchange, and returns what may be used in its place: b, emptied; with the build tag
// http1poison nothing, for b is overwritten.
func RecycleBuffer(b []byte) []byte {
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
