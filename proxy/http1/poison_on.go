//go:build http1poison

package http1

// poisoned makes buffers unreadable when their exchange has ended; see memory.
const poisoned = true
