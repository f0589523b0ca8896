//go:build unix && !linux

package socket

// pollHangup is 0 because POLLRDHUP exists only on Linux. Elsewhere a half-closed
// connection is reported as readable: the end of the stream is what can be read.
const pollHangup = 0

// askUnread is FIONREAD of macOS and the BSDs, which package unix does not name.
const askUnread = 0x4004667f
