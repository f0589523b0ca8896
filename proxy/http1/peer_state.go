package http1

import (
	"net"
	"syscall"
)

// A peerProbe asks the kernel about a socket, many times without allocating.
type peerProbe struct {
	raw   syscall.RawConn // nil if there is no socket
	poll  func(fd uintptr)
	state PeerState
}

func (s *peerProbe) init(nc net.Conn) {
	if s.raw = rawSocketOf(nc); s.raw != nil {
		s.poll = func(fd uintptr) { s.state = pollPeer(fd) }
	}
}

// peerState asks. It is not for concurrent use.
func (s *peerProbe) peerState() PeerState {
	s.state = PeerReset
	_ = s.raw.Control(s.poll) // a closed one is broken
	return s.state
}
