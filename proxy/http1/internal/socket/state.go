package socket

import (
	"net"
	"syscall"
)

// A State is the state of the other end of a connection, as far as the socket shows
// it.
type State uint8

// The states of a peer.
const (
	Open       State = iota // connected as far as is known, with nothing to read
	Readable                // there are unread bytes
	HalfClosed              // the peer has closed its sending side
	Reset                   // the connection is reset or closed
)

// A Probe polls the state of one socket repeatedly without allocating. The zero Probe has
// none.
type Probe struct {
	raw   syscall.RawConn
	poll  func(fd uintptr)
	state State
}

// Init prepares p for the socket of nc. Raw returns nil afterwards if nc has no socket, or if the
// system cannot poll it.
func (p *Probe) Init(nc net.Conn) {
	if !CanPoll {
		return
	}
	if p.raw = Of(nc); p.raw != nil {
		p.poll = func(fd uintptr) { p.state = pollPeer(fd) }
	}
}

// Raw returns the socket, or nil if there is none or the system cannot poll it.
func (p *Probe) Raw() syscall.RawConn { return p.raw }

// State returns the current state. Raw must not return nil. It must not be called
// concurrently.
func (p *Probe) State() State {
	p.state = Reset
	_ = p.raw.Control(p.poll) // fails if the socket is closed, which counts as reset
	return p.state
}
