package socket

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

// State returns the state of the other end of the connection. It does not read, and may be
// called while another goroutine reads. It returns Open if the socket cannot be polled.
func (c *Conn) State() State {
	if c.Raw == nil {
		return Open
	}
	s := Reset
	_ = c.Raw.Control(func(fd uintptr) { s = pollPeer(fd) }) // fails if the socket is closed, which counts as reset
	return s
}
