package frontend

import (
	"net"
	"sync"
)

// A handover is a net.Listener for connections that were accepted elsewhere.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// deliver passes c to Accept and returns true. If the listener is closed, it closes c
// and returns false.
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

// Addr implements net.Listener. It returns a placeholder.
func (h *handover) Addr() net.Addr { return &net.UnixAddr{Name: "http2"} }
