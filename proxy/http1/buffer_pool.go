package http1

import "sync"

const (
	headBufferSize = 8 << 10 // enough for most heads and small messages
	// BodyBufferSize is the size in bytes of the buffer that an exchange holds while a body is
	// read: one of unknown length, or one that is read by Next and does not fit behind its head.
	BodyBufferSize = 32 << 10
)

// A bufferPool holds buffers for reuse. A buffer that was put back may be reused for
// another message at once, so nothing may refer to it any more. With the build tag
// poison, buffers are overwritten instead and never reused.
type bufferPool struct {
	heads, bodies sync.Pool
}

func (p *bufferPool) getHead() []byte {
	if b, ok := p.heads.Get().(*[headBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, headBufferSize)
}

func (p *bufferPool) getBody() []byte {
	if b, ok := p.bodies.Get().(*[BodyBufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, BodyBufferSize)
}

// put returns a buffer of either size to the pool. Buffers of other sizes are dropped.
func (p *bufferPool) put(b []byte) {
	if b = RecycleBuffer(b); b == nil {
		return
	}
	switch b = b[:cap(b)]; len(b) {
	case headBufferSize:
		p.heads.Put((*[headBufferSize]byte)(b))
	case BodyBufferSize:
		p.bodies.Put((*[BodyBufferSize]byte)(b))
	}
}

// RecycleBuffer ends the use of b, whose content was valid only during an exchange. It
// returns b with length 0, for reuse. With the build tag poison it overwrites b
// and returns nil.
func RecycleBuffer(b []byte) []byte {
	if poisoned {
		poison(b)
		return nil
	}
	return b[:0]
}

// poison overwrites b, so that a later use of its content is noticed.
func poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xDB
	}
}
