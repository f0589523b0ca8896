//go:build unix && !linux

package http1

// pollHangup is not known here: the end of a stream looks like something to read.
const hungUp = 0
