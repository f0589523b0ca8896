//go:build unix && !linux

package socket

// pollHangup is 0 because POLLRDHUP exists only on Linux. Elsewhere a half-closed
// connection is reported as readable: the end of the stream is what can be read.
const pollHangup = 0
