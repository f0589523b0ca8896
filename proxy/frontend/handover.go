package frontend

import (
	"net"
	"sync"
)

// A handover is a listener of connections that have been accepted already.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// deliver gives c to Accept, or closes it if nobody asks any more; it reports which.
func (h *handover) deliver(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		_ = c.Close()
		return false
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener: it has none of its own.
func (h *handover) Addr() net.Addr { return &net.UnixAddr{Name: "http2"} }
