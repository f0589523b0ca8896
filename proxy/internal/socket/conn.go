package socket

import (
	"net"
	"syscall"
)

// A Conn is a connection whose socket can be polled, read and written without the Go
// scheduler. It must not be copied after its first Write.
type Conn struct {
	// Raw is the socket below the connection, or nil if there is none or the system cannot
	// poll it. IsPlain reports that it is the connection itself.
	Raw     syscall.RawConn
	IsPlain bool

	net       net.Conn
	tls       *tlsConn // between the two; nil if there is none, or its handshake is not complete
	unsent    []byte   // by Write
	err       error
	oneByte   [1]byte
	writeFunc func(fd uintptr) bool // writeSome, a method value made once, to avoid an allocation per call
}

// New returns the Conn of nc, which may be wrapped by TLS or by the PROXY protocol.
func New(nc net.Conn) Conn {
	if !CanPoll {
		return Conn{net: nc}
	}
	c := Conn{net: nc, Raw: rawConn(nc)}
	c.IsPlain = c.Raw != nil && isSocket(nc)
	c.FindTLS()
	return c
}

// FindTLS makes ReadNow possible if the handshake of a TLS connection is complete meanwhile.
func (c *Conn) FindTLS() { c.tls = tlsOf(c.net) }

// CanReadNow reports whether ReadNow can be called.
func (c *Conn) CanReadNow() bool { return c.IsPlain || c.tls != nil }

// ReadNow reads what the connection has received, in a function that Raw.Read calls. It
// returns ErrWouldBlock if that is nothing, and never bytes together with an error. There
// must be no concurrent read.
func (c *Conn) ReadNow(fd uintptr, p []byte) (int, error) {
	if c.tls != nil {
		c.tls.fd = fd
		return c.tls.read(readReceived, p)
	}
	return readNow(c.net, fd, p)
}

// IsQuiet reports whether the socket has received nothing, not even the end of the
// connection. Otherwise the connection cannot be used any more.
func (c *Conn) IsQuiet(fd uintptr) bool {
	_, err := readNow(c.net, fd, c.oneByte[:])
	return err == ErrWouldBlock //nolint:errorlint // it is never wrapped
}

// WriteNow writes as much of p as the socket accepts, and ErrWouldBlock if that is not all.
// TLS waits until all of p was written.
func (c *Conn) WriteNow(fd uintptr, p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.above.Write(p)
	}
	return writeNow(c.net, fd, p)
}

// Write writes all of p to a connection that is plain. It costs less than net.Conn.Write.
func (c *Conn) Write(p []byte) error {
	if c.writeFunc == nil {
		c.writeFunc = c.writeSome
	}
	c.unsent, c.err = p, nil
	err := c.Raw.Write(c.writeFunc)
	c.unsent = nil
	if err != nil {
		return TrimRaw(err)
	}
	return c.err
}

func (c *Conn) writeSome(fd uintptr) bool {
	n, err := c.WriteNow(fd, c.unsent)
	c.unsent = c.unsent[n:]
	if err == ErrWouldBlock { //nolint:errorlint // it is never wrapped
		return false
	}
	c.err = err
	return true
}

// HasBuffered reports whether TLS holds decrypted bytes that have not been read, which State
// does not show. There must be no concurrent read.
func (c *Conn) HasBuffered() bool {
	if c.tls == nil {
		return false
	}
	_, err := c.tls.read(readNothing, c.oneByte[:])
	return err != ErrWouldBlock //nolint:errorlint // TLS returns it unwrapped
}

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

// CanWrite reports whether the socket accepts a short write at once; there must be a Raw.
func (c *Conn) CanWrite() (can bool) {
	_ = c.Raw.Control(func(fd uintptr) { can = canWrite(fd) }) // fails if the socket is closed
	return can
}

// Unread returns how many bytes the socket has received that were not read. It may be called while another goroutine
// reads. It returns 0 if the socket is closed; there must be a Raw.
func (c *Conn) Unread() (bytes int) {
	_ = c.Raw.Control(func(fd uintptr) { bytes = unread(fd) }) // fails if the socket is closed
	return bytes
}
