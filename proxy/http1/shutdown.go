package http1

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
)

// DisableKeepAlives makes every response announce the end of its connection from now
// on. The server still accepts connections.
func (s *Server) DisableKeepAlives() { s.keepAlivesDisabled.Store(true) }

// Shutdown shuts the server down gracefully. It stops accepting connections, calls
// DisableKeepAlives, closes idle connections, and waits for exchanges in progress until
// ctx is done. It then closes the connections that are left and returns an error. It
// does not wait for connections that were handed over.
func (s *Server) Shutdown(ctx context.Context) error {
	s.DisableKeepAlives()
	s.stopListening()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.closeIdleConns() {
			s.stopMonitor()
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("exchanges aborted: %w", ctx.Err()), s.Close())
		case <-tick.C:
		}
	}
}

// Close closes all listeners and connections immediately, also those with an exchange
// in progress.
func (s *Server) Close() error {
	s.DisableKeepAlives()
	s.stopListening()
	for _, c := range s.appendConns(nil) {
		c.state.Store(stateAborted)
		_ = c.net.Close()
		c.monitor.abort()
	}
	s.stopMonitor()
	return nil
}

func (s *Server) stopListening() {
	s.prepare()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for l := range s.listeners {
		_ = l.Close()
	}
}

// closeIdleConns ends connections that wait for a request of which no byte has arrived.
// It reports whether no connection is left.
func (s *Server) closeIdleConns() bool {
	all := s.appendConns(nil)
	for _, c := range all {
		if c.state.Load() == stateIdle && socket.StateOf(c.socket) != socket.Readable {
			c.endIdleWait()
		}
	}
	return len(all) == 0
}

// endIdleWait ends c if it still waits for a request. A request that arrives at the
// same moment is served; see requestDuringShutdown.
func (c *conn) endIdleWait() {
	c.mu.Lock() // orders this deadline before the one of requestDuringShutdown
	defer c.mu.Unlock()
	if c.state.CompareAndSwap(stateIdle, stateEnded) {
		_ = c.net.SetReadDeadline(pastTime())
	}
}

func (s *Server) stopMonitor() {
	s.mu.Lock()
	stop := s.monitorStop
	s.monitorStop = nil
	s.mu.Unlock()
	if stop != nil {
		close(stop)
		s.monitorGroup.Wait()
	}
}
