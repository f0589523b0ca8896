package socket

import "golang.org/x/sys/unix"

// pollHangup is the event for a peer that has closed its sending side.
const pollHangup = unix.POLLRDHUP

// askUnread is the request of ioctl(2) for the number of unread bytes.
const askUnread = unix.TIOCINQ
