//go:build race

package http1

// raced says that the race detector is on, which allocates.
const raced = true
