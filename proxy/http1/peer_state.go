package http1

import (
	"net"
	"syscall"
)

// A PeerState is the state of the other end of a connection, as far as the socket shows
// it.
type PeerState uint8

// The states of a peer.
const (
	PeerOpen       PeerState = iota // connected as far as is known, with nothing to read
	PeerReadable                    // there are unread bytes
	PeerHalfClosed                  // the peer has closed its sending side
	PeerReset                       // the connection is reset or closed
)

// A peerProbe polls the state of a socket repeatedly without allocating.
type peerProbe struct {
	raw   syscall.RawConn // nil if the connection has no socket, or if the system cannot poll it
	poll  func(fd uintptr)
	state PeerState
}

func (s *peerProbe) init(nc net.Conn) {
	if !canPoll {
		return
	}
	if s.raw = rawSocketOf(nc); s.raw != nil {
		s.poll = func(fd uintptr) { s.state = pollPeer(fd) }
	}
}

// peerState returns the current state. It must not be called concurrently.
func (s *peerProbe) peerState() PeerState {
	s.state = PeerReset
	_ = s.raw.Control(s.poll) // fails if the socket is closed, which counts as reset
	return s.state
}
