package http1

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Part tells clients from now on, with each response, that it is the last of
// its connection. Connections are still taken.
func (s *Server) Part() { s.parting.Store(true) }

// Shutdown ends the server in peace: it takes no more connections, tells clients
// as Part does, closes connections that wait for a request, and lets exchanges
// in progress end until ctx is done. Those that have not ended then are cut, and
// the error says so. Connections that were handed over are not waited for.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Part()
	s.stopListening()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.endIdle() {
			s.stopSweeping()
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
	s.Part()
	s.stopListening()
	for _, c := range s.current(nil) {
		c.state.Store(cut)
		_ = c.net.Close()
		c.watch.leave()
	}
	s.stopSweeping()
	return nil
}

func (s *Server) stopListening() {
	s.prepare()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for l := range s.listeners {
		_ = l.Close()
	}
}

// endIdle ends connections that wait for a request and have not begun to bring
// one. It reports whether no connection is left.
func (s *Server) endIdle() bool {
	all := s.current(nil)
	for _, c := range all {
		if c.state.Load() == idle && look(c.fd) != Talking {
			c.endWait()
		}
	}
	return len(all) == 0
}

// endWait ends c if it still waits for a request; one that comes meanwhile is answered,
// see lateRequest.
func (c *conn) endWait() {
	c.mu.Lock() // so that lateRequest sets its deadline after this one
	defer c.mu.Unlock()
	if c.state.CompareAndSwap(idle, ended) {
		_ = c.net.SetReadDeadline(passed())
	}
}

func (s *Server) stopSweeping() {
	s.mu.Lock()
	sweeping := s.sweeping
	s.sweeping = nil
	s.mu.Unlock()
	if sweeping != nil {
		close(sweeping)
		s.swept.Wait()
	}
}
