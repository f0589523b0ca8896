package http1

import "golang.org/x/sys/unix"

// pollHangup is the event for a peer that has closed its sending side.
const pollHangup = unix.POLLRDHUP
