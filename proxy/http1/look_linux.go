package http1

import "golang.org/x/sys/unix"

// hungUp says that the other end sends nothing more.
const hungUp = unix.POLLRDHUP
