package socket

import "golang.org/x/sys/unix"

// pollHangup is the event for a peer that has closed its sending side.
const pollHangup = unix.POLLRDHUP
