//go:build poison

package http1

// poisoned makes the package overwrite buffers instead of reusing them; see bufferPool.
const poisoned = true
