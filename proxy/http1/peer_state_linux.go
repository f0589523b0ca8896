package http1

import "golang.org/x/sys/unix"

// pollHangup says that the other end sends nothing more.
const pollHangup = unix.POLLRDHUP
