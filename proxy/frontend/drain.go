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
	// announceClose is how long connections that wait to be accepted are let in before
	// a listener is closed for good.
	announceClose = time.Second
	// acceptGrace is how long a connection may take to be opened, once its client has
	// begun to.
	acceptGrace = 300 * time.Millisecond
	// closeFrame is how long connections in use have to carry one more answer, which
	// says that it is the last, before those without a request are closed.
	closeFrame = time.Second
)

// AnnounceClose tells clients, with each response from now on, that their connection
// ends: HTTP/1 by Connection: close, HTTP/2 by GOAWAY. Connections are still taken. A
// load balancer may need that time to learn that this server leaves.
func (s *Server) AnnounceClose() {
	s.closing.Store(true)
	s.http1.DisableKeepAlives()
}

// Drain ends the server in peace. It takes the connections that wait already and then
// no more; tells clients as AnnounceClose does; closes connections that are not in use;
// lets requests in progress end until ctx is done, and then cuts those that have not.
// Closing is the last thing that happens to a connection on which a client was just
// told so: a request that is on its way is not lost.
func (s *Server) Drain(ctx context.Context) error {
	s.AnnounceClose()
	for _, l := range s.allListeners() {
		s.shut(l)
	}
	s.accepting.Wait() // what was accepted last is counted then, if nobody has begun to serve it
	until(ctx, closeFrame, func() bool { return s.connections.Load() == 0 })
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

// shut closes l once nobody waits there to be accepted: the kernel would reset
// those connections. Where another process listens too, nobody is to come in the
// last moment.
func (s *Server) shut(l net.Listener) {
	if s.bounds.ReusePort {
		dropSYN(l)
		<-time.After(acceptGrace)
	}
	until(context.Background(), announceClose, func() bool { return !pending(l) })
	l.Close()
}

// until waits until it is so, at most so long.
func until(ctx context.Context, most time.Duration, so func() bool) {
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

// open notes that l is served, and reports whether it is not too late for that.
func (s *Server) open(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		_ = l.Close()
		return false
	}
	s.listeners = append(s.listeners, l)
	s.accepting.Add(1)
	return true
}

// allListeners are all listeners; from now on there will be no more.
func (s *Server) allListeners() []net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.listeners
}

// countConn is http.Server's ConnState: a connection of HTTP/2 that was delivered has
// ended.
func (s *Server) countConn(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		s.connections.Add(-1)
	}
}

// announcing is next, whose answers say that the connection ends once it does.
func (s *Server) announcing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.closing.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// serveError is the error of a listener that is no longer served; none if that was
// meant.
func (s *Server) serveError(l net.Listener, err error) error {
	if errors.Is(err, http.ErrServerClosed) || s.closing.Load() && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}
