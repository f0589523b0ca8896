package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/internal/socket"
)

// A Handler responds to one request. It is called on the goroutine of the connection.
// When it returns, the exchange has ended: neither x nor any string of x may be used
// after that. If the handler has not completed the response, the connection is closed.
type Handler func(x *Exchange)

// A Server reads requests from client connections and calls its Handler. Its fields
// must be set before the first connection is served and must not be changed afterwards.
type Server struct {
	Handler  Handler
	Limits   Limits
	Timeouts Timeouts
	// ErrorHandler responds to a request that could not be parsed. If it is nil, the
	// client gets the status of the error and one line of text. The connection is
	// closed in either case.
	ErrorHandler func(x *Exchange, err error)
	// HTTP2 serves a connection that begins with the HTTP/2 connection preface (RFC
	// 9113 section 3.4); received is what has been read of it. If it is nil, such a
	// connection is refused.
	HTTP2 func(c net.Conn, received []byte)
	// OnPanic is called with the value that a Handler panicked with. It must be set if
	// that can happen. The connection is closed.
	OnPanic func(v any)
	// HalfClose defines how to treat a client that has closed its sending side.
	HalfClose HalfClosePolicy

	setupOnce          sync.Once
	buffers            bufferPool
	exchangePool       sync.Pool // of *Exchange
	epoch              time.Time
	date               DateCache
	yields             bool           // connections yield before reads; see readYield
	keepAlivesDisabled atomic.Bool    // every response says Connection: close
	monitored          ConnSet[*conn] // whose exchanges wait, or have waited since the last round of checks
	conns              ConnSet[*conn]
	monitor            sync.WaitGroup // monitorClients
	stopMonitor        func()         // ends it
}

// A HalfClosePolicy defines what it means if a client closes its sending side while its
// request is in progress. A client that has gone away does this, and so does a client
// that has nothing more to send and waits for the response (RFC 9112 section 9.6). The
// server cannot tell the two apart.
type HalfClosePolicy uint8

// The policies for half-closed connections.
const (
	// AllowHalfClose continues to serve the request until the connection is reset.
	// Before the response starts, the server probes the client once with an interim 100
	// Continue response. Afterwards it aborts the exchange if it has written nothing
	// for Timeouts.Write.
	AllowHalfClose   HalfClosePolicy = iota
	AbortOnHalfClose                 // the client is taken to be gone, if the exchange has lasted for monitorInterval
)

// prepare initializes s before its first connection.
func (s *Server) prepare() {
	s.setupOnce.Do(func() {
		s.Limits = s.Limits.forRequests()
		s.epoch = time.Now()
		s.date.At(s.epoch)
		// With more processors others run anyway, and a yield takes a lock of all processors.
		s.yields = s.yields || runtime.GOMAXPROCS(0) == 1
		done := make(chan struct{})
		s.monitor.Go(func() { s.monitorClients(done) })
		s.stopMonitor = sync.OnceFunc(func() {
			close(done)
			s.monitor.Wait()
		})
	})
}

// now returns the time since the server was initialized.
func (s *Server) now() time.Duration { return time.Since(s.epoch) }

// TLSServer is tls.Server for a connection that ServeConn serves: if nc is a socket, requests after the first are read
// with fewer steps.
func TLSServer(nc net.Conn, config *tls.Config) *tls.Conn { return socket.TLSServer(nc, config) }

// ServeConn serves one connection until it ends. A TLS connection must be a *tls.Conn;
// its handshake need not be complete.
func (s *Server) ServeConn(nc net.Conn) {
	s.prepare()
	c := newConn(s, nc)
	if !s.conns.Add(c) {
		nc.Close()
		return
	}
	defer s.conns.Remove(c)
	c.serve()
}

// A ConnSet holds the connections, or tunnels between two, that are in use. The zero ConnSet is empty and open.
type ConnSet[C comparable] struct {
	mu     sync.Mutex // guards what follows
	conns  map[C]struct{}
	closed bool
}

// Add adds c. It returns false if the set is closed.
func (s *ConnSet[C]) Add(c C) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.conns == nil {
		s.conns = map[C]struct{}{}
	}
	s.conns[c] = struct{}{}
	return true
}

// Remove removes c, which has ended or has been handed over.
func (s *ConnSet[C]) Remove(c C) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Close lets no more connections be added.
func (s *ConnSet[C]) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// All returns the connections.
func (s *ConnSet[C]) All() []C {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// MaxFields is the most field lines that Weir accepts of a head, whether a client or a target sends it.
const MaxFields = 1024

// Limits bound the size of a message. A message that exceeds a limit is refused, never
// truncated, except that interim responses and trailer sections beyond their limits are
// dropped. A field that is 0 has its default.
type Limits struct {
	Target int // bytes of a request target; default 8 KiB
	Head   int // bytes of a head, including the start line; default 32 KiB
	Fields int // field lines of a head; default 128

	chunkLine     int  // bytes of a chunk line, including extensions
	chunkOverhead int  // bytes of chunk lines in excess of the data
	lenient       bool // the messages are responses
}

const (
	maxHead          = 1 << 24   // the largest configurable size of a head, into which offsets have 32 bits
	maxTrailer       = 8 << 10   // bytes of a trailer section
	maxTrailerFields = 32        // field lines of a trailer section
	maxInterim       = 100       // 1xx responses that are forwarded; the rest is dropped
	maxDrained       = 256 << 10 // bytes of an unread request body that are discarded to keep the connection
	maxEmptyLines    = 4         // empty lines before a request
)

// forRequests returns l with its defaults, for messages that are read from clients.
func (l Limits) forRequests() Limits {
	l.Target, l.Head, l.Fields = cmp.Or(l.Target, 8<<10), min(cmp.Or(l.Head, 32<<10), maxHead), cmp.Or(l.Fields, 128)
	l.chunkLine, l.chunkOverhead = 256, 16<<10
	return l
}

// forResponses returns l with its defaults, for messages that are read from upstreams.
func (l Limits) forResponses() Limits {
	l = l.forRequests()
	l.chunkLine, l.chunkOverhead, l.lenient = 4<<10, 64<<10, true
	return l
}

// Timeouts bound waiting for a client, also for one that sends slowly on purpose (slowloris). A field that is 0 means no timeout.
type Timeouts struct {
	Header time.Duration // for a whole head, from its first byte or from the start of the connection; default Idle
	Body   time.Duration // between reads of a body; a body that takes longer in total must also reach minBodyRate
	Write  time.Duration // for each write to the client
	Idle   time.Duration // between requests
}

// header returns the timeout for a head.
func (t *Timeouts) header() time.Duration { return cmp.Or(t.Header, t.Idle) }

const (
	// minBodyRate is the average rate in bytes per second that a request body must
	// reach once it has taken longer than Timeouts.Body. A client that sends one byte
	// now and then (a slow-body attack) would otherwise never time out.
	minBodyRate = 500
	// lingerTimeout is how long the server reads on from a client that keeps sending after
	// the response that ends its connection; see conn.linger.
	lingerTimeout = 30 * time.Second
	// lingerIdle is how long it waits for such a client to send more, and how long it
	// reads on while it is being shut down.
	lingerIdle = time.Second
)

// DisableKeepAlives makes every response announce the end of its connection from now
// on. The server still serves new connections.
func (s *Server) DisableKeepAlives() { s.keepAlivesDisabled.Store(true) }

// Shutdown shuts the server down gracefully. It closes new connections, calls
// DisableKeepAlives, closes idle connections, and waits for exchanges in progress until
// ctx is done. It then closes the connections that are left and returns an error. It
// does not wait for connections that were handed over.
func (s *Server) Shutdown(ctx context.Context) error {
	s.prepare()
	s.DisableKeepAlives()
	s.conns.Close()
	if err := WaitUntil(ctx, 5*time.Millisecond, s.closeIdleConns); err != nil {
		return errors.Join(fmt.Errorf("exchanges aborted: %w", err), s.Close())
	}
	s.stopMonitor()
	return nil
}

// WaitUntil calls done at this interval until it returns true. It returns the error of ctx
// if that is done before.
func WaitUntil(ctx context.Context, interval time.Duration, done func() bool) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close closes all connections immediately, also those with an exchange
// in progress.
func (s *Server) Close() error {
	s.prepare()
	s.DisableKeepAlives()
	s.conns.Close()
	for _, c := range s.conns.All() {
		c.state.Store(stateAborted)
		_ = c.net.Close()
		c.monitor.abort()
	}
	s.stopMonitor()
	return nil
}

// closeIdleConns ends connections that wait for a request of which no byte has arrived.
// It reports whether no connection is left.
func (s *Server) closeIdleConns() bool {
	all := s.conns.All()
	for _, c := range all {
		if c.state.Load() == stateIdle && c.socket.State() != socket.Readable {
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
