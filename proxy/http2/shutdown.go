package http2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
)

// drainWait is how long a connection that announced its end stays open for requests that
// its client sent before it knew.
const drainWait = time.Second

// lastStream is the largest number of a stream. A GOAWAY with it announces the end of the
// connection, and still accepts new requests (RFC 9113 section 6.8).
const lastStream = 1<<31 - 1

// AnnounceClose makes connections announce their end by GOAWAY with their next response.
// The server still accepts connections.
func (s *Server) AnnounceClose() { s.announceClose.Store(true) }

// Shutdown shuts the server down gracefully. All connections announce their end. They
// still serve requests in progress, and those that were sent before the client knew.
// When ctx is done, Shutdown closes the connections that are left and returns an error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.prepare()
	s.AnnounceClose()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, c := range s.appendConns(nil) {
		c.drain()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		left := s.appendConns(nil)
		if len(left) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			for _, c := range left {
				_ = c.net.Close()
				c.mu.Lock()
				c.abortLocked(net.ErrClosed) // it may wait for a handler instead of reading
				c.mu.Unlock()
			}
			return errors.Join(fmt.Errorf("streams aborted: %w", ctx.Err()))
		}
	}
}

// drain announces the end of the connection. It is called by any goroutine.
func (c *conn) drain() {
	c.mu.Lock()
	c.drainLocked()
	c.mu.Unlock()
	c.flush()
	c.interruptRead()
}

// drainLocked is drain without sending the GOAWAY frame.
func (c *conn) drainLocked() {
	if !c.draining && c.ready {
		_ = c.framer.WriteGoAway(lastStream, http2.ErrCodeNo, nil)
		c.idleSince, c.drainingSince = time.Now(), time.Now()
	}
	c.draining = true
}

// refusesLocked reports whether new streams are refused: drainWait after the announcement of the end, which
// is then repeated with the last stream that is served (RFC 9113 section 6.8).
func (c *conn) refusesLocked() bool {
	if !c.refuses && c.draining && time.Since(c.drainingSince) >= drainWait {
		c.refuses = true
		_ = c.framer.WriteGoAway(c.lastID, http2.ErrCodeNo, nil)
	}
	return c.refuses
}
