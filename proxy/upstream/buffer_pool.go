package upstream

import "sync"

// bufferSize is the size of the buffers that response bodies are read into.
const bufferSize = 32 << 10

// A bufferPool holds the buffers through which response bodies are copied.
type bufferPool struct{ pool sync.Pool }

func newBufferPool() *bufferPool {
	return &bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}
}

// Get returns a buffer.
func (b *bufferPool) Get() []byte { return b.pool.Get().(*[bufferSize]byte)[:] }

// Put returns a buffer to the pool.
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
