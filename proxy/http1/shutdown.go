package http1

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DisableKeepAlives tells clients from now on, with each response, that it is the last of
// its connection. Connections are still taken.
func (s *Server) DisableKeepAlives() { s.keepAlivesDisabled.Store(true) }

// Shutdown ends the server in peace: it takes no more connections, tells clients
// as Part does, closes connections that wait for a request, and lets exchanges
// in progress end until ctx is done. Those that have not ended then are cut, and
// the error says so. Connections that were handed over are not waited for.
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
			return errors.Join(fmt.Errorf("exchanges cut off: %w", ctx.Err()), s.Close())
		case <-tick.C:
		}
	}
}

// Close ends the server at once, and cuts exchanges in progress.
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

// closeIdleConns ends connections that wait for a request and have not begun to bring
// one. It reports whether no connection is left.
func (s *Server) closeIdleConns() bool {
	all := s.appendConns(nil)
	for _, c := range all {
		if c.state.Load() == stateIdle && peerState(c.socket) != PeerReadable {
			c.endIdleWait()
		}
	}
	return len(all) == 0
}

// endIdleWait ends c if it still waits for a request; one that comes meanwhile is answered,
// see requestDuringShutdown.
func (c *conn) endIdleWait() {
	c.mu.Lock() // so that requestDuringShutdown sets its deadline after this one
	defer c.mu.Unlock()
	if c.state.CompareAndSwap(stateIdle, stateEnded) {
		_ = c.net.SetReadDeadline(pastTime())
	}
}

func (s *Server) stopMonitor() {
	s.mu.Lock()
	sweeping := s.monitorStop
	s.monitorStop = nil
	s.mu.Unlock()
	if sweeping != nil {
		close(sweeping)
		s.monitorGroup.Wait()
	}
}
