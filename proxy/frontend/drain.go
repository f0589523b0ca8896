package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// acceptBacklogTimeout is how long a listener stays open to accept the connections
	// in its backlog.
	acceptBacklogTimeout = time.Second
	// handshakeGrace is how long a TCP handshake in progress may take.
	handshakeGrace = 300 * time.Millisecond
	// lastResponseWait is how long connections in use can carry one more response,
	// which announces the end of the connection, before idle connections are closed.
	lastResponseWait = time.Second
)

// AnnounceClose makes every response announce the end of its connection: HTTP/1.1 by
// Connection: close, HTTP/2 by GOAWAY. The server still accepts connections, for
// example until a load balancer has noticed that it shuts down.
func (s *Server) AnnounceClose() {
	s.announceClose.Store(true)
	s.http1.DisableKeepAlives()
	if s.http2 != nil {
		s.http2.AnnounceClose()
	}
}

// Drain shuts the server down gracefully. It accepts the connections in the backlog and
// no more. It calls AnnounceClose, closes idle connections, and waits for requests in
// progress until ctx is done; then it closes the connections that are left and returns
// an error. WebSockets that are left are closed with status 1001, which is no error. A connection is closed only some time after its client was informed, so
// that no request in transit is lost.
func (s *Server) Drain(ctx context.Context) error {
	s.AnnounceClose()
	for _, l := range s.markClosed() {
		s.closeListener(l)
	}
	s.accepting.Wait() // afterwards all accepted connections are counted
	waitUntil(ctx, lastResponseWait, func() bool { return s.connections.Load() == 0 })
	s.stop()
	streams, closeStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer closeStreams()
	ended := make(chan error, 1)
	go func() {
		if s.http2 == nil {
			ended <- nil
			return
		}
		ended <- s.http2.Shutdown(streams)
	}()
	tunnelsEnded := make(chan struct{})
	go func() {
		s.tunnels.Drain(ctx)
		close(tunnelsEnded)
	}()
	stop := context.AfterFunc(ctx, func() {
		<-tunnelsEnded // some are streams
		closeStreams()
	})
	defer stop()
	err := errors.Join(s.http1.Shutdown(streams), <-ended)
	<-tunnelsEnded
	waitUntil(context.Background(), lastResponseWait, func() bool { return s.connections.Load() == 0 }) // their requests are logged
	if err != nil && !errors.Is(err, net.ErrClosed) {                                                   // the listeners are closed
		return fmt.Errorf("requests aborted at the end of the drain timeout: %w", err)
	}
	return nil
}

// closeListener closes l when its accept backlog is empty, because the kernel resets
// the connections in it. If another process listens on the same port, l first stops
// getting new connections.
func (s *Server) closeListener(l net.Listener) {
	if s.config.ReusePort {
		dropSYN(l)
		<-time.After(handshakeGrace)
	}
	waitUntil(context.Background(), acceptBacklogTimeout, func() bool { return !pending(l) })
	l.Close()
}

// waitUntil waits until done returns true, at most for the timeout.
func waitUntil(ctx context.Context, timeout time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// addListener registers l. It closes l and returns false if the server is closed.
func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = l.Close()
		return false
	}
	s.listeners = append(s.listeners, l)
	s.accepting.Add(1)
	return true
}

// markClosed returns all listeners. No more can be added after that.
func (s *Server) markClosed() []net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.listeners
}

// serveError returns the error of a listener, or nil if it was closed by Drain.
func (s *Server) serveError(l net.Listener, err error) error {
	if s.announceClose.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}
