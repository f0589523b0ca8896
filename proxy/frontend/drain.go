package frontend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	// acceptBacklogTimeout is how long connections that wait to be accepted are let in before
	// a listener is closed for good.
	acceptBacklogTimeout = time.Second
	// handshakeGrace is how long a connection may take to be opened, once its client has
	// begun to.
	handshakeGrace = 300 * time.Millisecond
	// lastResponseWait is how long connections in use have to carry one more answer, which
	// says that it is the last, before those without a request are closed.
	lastResponseWait = time.Second
)

// AnnounceClose tells clients, with each response from now on, that their connection
// ends: HTTP/1 by Connection: close, HTTP/2 by GOAWAY. Connections are still taken. A
// load balancer may need that time to learn that this server leaves.
func (s *Server) AnnounceClose() {
	s.announceClose.Store(true)
	s.http1.DisableKeepAlives()
}

// Drain ends the server in peace. It takes the connections that wait already and then
// no more; tells clients as AnnounceClose does; closes connections that are not in use;
// lets requests in progress end until ctx is done, and then cuts those that have not.
// Closing is the last thing that happens to a connection on which a client was just
// told so: a request that is on its way is not lost.
func (s *Server) Drain(ctx context.Context) error {
	s.AnnounceClose()
	for _, l := range s.stopListening() {
		s.closeListener(l)
	}
	s.accepting.Wait() // what was accepted last is counted then, if nobody has begun to serve it
	waitUntil(ctx, lastResponseWait, func() bool { return s.connections.Load() == 0 })
	s.stop()
	first := make(chan error, 1)
	go func() { first <- s.http1.Shutdown(ctx) }()
	err := s.http2.Shutdown(ctx)
	if err != nil {
		s.http2.Close()
	}
	_ = s.handover.Close() // if it was never served
	err = errors.Join(err, <-first)
	if err != nil && !errors.Is(err, net.ErrClosed) { // the listeners are
		return fmt.Errorf("requests cut off after the time to drain: %w", err)
	}
	return nil
}

// closeListener closes l once nobody waits there to be accepted: the kernel would reset
// those connections. Where another process listens too, nobody is to come in the
// last moment.
func (s *Server) closeListener(l net.Listener) {
	if s.config.ReusePort {
		dropSYN(l)
		<-time.After(handshakeGrace)
	}
	waitUntil(context.Background(), acceptBacklogTimeout, func() bool { return !pending(l) })
	l.Close()
}

// waitUntil waits until it is so, at most so long.
func waitUntil(ctx context.Context, most time.Duration, so func() bool) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// addListener notes that l is served, and reports whether it is not too late for that.
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

// stopListening are all listeners; from now on there will be no more.
func (s *Server) stopListening() []net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.listeners
}

// countConn is http.Server's ConnState: a connection of HTTP/2 that was delivered has
// ended.
func (s *Server) countConn(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.connections.Add(-1)
	}
}

// withAnnounceClose is next, whose answers say that the connection ends once it does.
func (s *Server) withAnnounceClose(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.announceClose.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// serveError is the error of a listener that is no longer served; none if that was
// meant.
func (s *Server) serveError(l net.Listener, err error) error {
	if errors.Is(err, http.ErrServerClosed) || s.announceClose.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}
