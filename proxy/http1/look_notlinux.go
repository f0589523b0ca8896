//go:build unix && !linux

package http1

// hungUp is not known here: the end of a stream looks like something to read.
const hungUp = 0
