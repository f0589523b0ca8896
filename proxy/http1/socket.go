package http1

import (
	"net"
	"syscall"
)

// A rawSocket asks the kernel about a socket, many times without allocating.
type rawSocket struct {
	raw   syscall.RawConn // nil if there is no socket
	ask   func(fd uintptr)
	found Presence
}

func (s *rawSocket) open(nc net.Conn) {
	if s.raw = socket(nc); s.raw != nil {
		s.ask = func(fd uintptr) { s.found = lookAt(fd) }
	}
}

// look asks. It is not for concurrent use.
func (s *rawSocket) look() Presence {
	s.found = Broken
	_ = s.raw.Control(s.ask) // a closed one is broken
	return s.found
}
