package http2

import (
	"net"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/proxy/http1"
)

// SwitchProtocols implements upstream.Sink. It accepts an extended CONNECT (RFC 8441) with
// these fields, and returns the stream as a connection. It is closed when the handler
// returns.
func (s *Stream) SwitchProtocols(_ string, f *http1.Fields) (net.Conn, []byte, error) {
	if err := s.Begin(200, f, -1); err != nil {
		return nil, nil, err
	}
	if err := s.Flush(); err != nil {
		return nil, nil, err
	}
	return tunnel{s}, nil, nil
}

// A tunnel is a stream as a connection.
type tunnel struct{ *Stream }

// Write sends p at once.
func (t tunnel) Write(p []byte) (int, error) {
	n, err := t.Stream.Write(p)
	if err != nil {
		return 0, err
	}
	return n, t.Flush()
}

// CloseWrite ends the response. The client can still send.
func (t tunnel) CloseWrite() error {
	if err := t.End(nil); err != nil {
		return err
	}
	c := t.conn
	c.mu.Lock()
	t.finishLocked()
	err := t.streamState.err
	c.mu.Unlock()
	c.flush()
	return err
}

// Close makes pending reads and writes fail. Unless both directions have ended, it resets
// the stream.
func (t tunnel) Close() error {
	c := t.conn
	c.mu.Lock()
	if !t.endSent || !t.endReceived {
		c.resetLocked(t.Stream, http2.ErrCodeCancel, net.ErrClosed)
	}
	c.mu.Unlock()
	c.flush()
	return nil
}

// LocalAddr implements net.Conn.
func (t tunnel) LocalAddr() net.Addr { return t.conn.net.LocalAddr() }

// RemoteAddr implements net.Conn.
func (t tunnel) RemoteAddr() net.Addr { return t.conn.net.RemoteAddr() }

// SetDeadline implements net.Conn. Writing is bounded by Timeouts.Write.
func (t tunnel) SetDeadline(at time.Time) error { return t.SetReadDeadline(at) }

// SetWriteDeadline implements net.Conn.
func (tunnel) SetWriteDeadline(time.Time) error { return nil }
