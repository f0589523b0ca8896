package upstream

import "sync"

// bufferSize is what one read of a response's body can bring.
const bufferSize = 32 << 10

// bufferPool lends the memory that answers are copied through.
type bufferPool struct{ pool sync.Pool }

func newBufferPool() *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

// Get lends a buffer.
func (b *bufferPool) Get() []byte { return b.pool.Get().(*[bufferSize]byte)[:] }

// Put takes one back.
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
