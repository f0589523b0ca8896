package http1

import (
	"crypto/tls"
	"errors"
	"log"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/http1/internal/socket"
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
	// 9113 section 3.4). If it is nil, such a connection is refused.
	HTTP2 func(net.Conn)
	// OnPanic is called with the value that a Handler panicked with. If it is nil, the
	// panic and a stack trace go to the standard logger. The connection is closed.
	OnPanic func(v any)
	// OnClose is called when a connection has ended. err is nil if it ended without an
	// error.
	OnClose func(c net.Conn, err error)
	// FlushAfterHandler delays the last bytes of a response until the handler has
	// returned. A client that has read the whole response can then rely on the
	// handler's effects.
	FlushAfterHandler bool
	// HalfClose defines how to treat a client that has closed its sending side.
	HalfClose HalfClosePolicy

	setupOnce          sync.Once
	buffers            bufferPool
	exchangePool       sync.Pool // of *Exchange
	epoch              time.Time
	date               dateCache
	yields             bool        // connections yield before reads; see readYield
	keepAlivesDisabled atomic.Bool // every response says Connection: close
	connCount          atomic.Int64
	monitored          monitorList

	mu           sync.Mutex // guards what follows
	conns        map[*conn]struct{}
	listeners    map[net.Listener]struct{}
	monitorStop  chan struct{} // closed to stop monitorClients; nil if it does not run
	monitorGroup sync.WaitGroup
	closed       bool // no new connections are accepted
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
	AbortOnHalfClose                 // the client is taken to be gone, if the exchange has lasted at least monitorInterval
)

// prepare initializes s before its first connection.
func (s *Server) prepare() {
	s.setupOnce.Do(func() {
		s.Limits = s.Limits.withDefaults()
		s.epoch = time.Now()
		s.yields = s.yields || runtime.GOMAXPROCS(0) == 1 // others run anyway, and a yield takes a lock of all processors
		s.conns = map[*conn]struct{}{}
		s.listeners = map[net.Listener]struct{}{}
		s.exchangePool.New = func() any { return new(Exchange) }
	})
}

// now returns the time since the server was initialized.
func (s *Server) now() time.Duration { return time.Since(s.epoch) }

// Connections returns the number of open connections.
func (s *Server) Connections() int { return int(s.connCount.Load()) }

// Serve accepts connections from l until Shutdown or Close is called, and then returns
// nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	s.prepare()
	if !s.addListener(l) {
		l.Close()
		return nil
	}
	defer s.removeListener(l)
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			go s.ServeConn(c)
		case s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // most likely too many open files: wait until other connections end
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		}
	}
}

// isClosed reports whether Shutdown or Close was called.
func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.listeners[l] = struct{}{}
	}
	return !s.closed
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	l.Close()
}

// TLSServer is tls.Server for a connection that ServeConn serves: if nc is a socket, requests after the first are read
// with fewer steps.
func TLSServer(nc net.Conn, config *tls.Config) *tls.Conn { return socket.TLSServer(nc, config) }

// ServeConn serves one connection until it ends. A TLS connection must be a *tls.Conn;
// its handshake need not be complete.
func (s *Server) ServeConn(nc net.Conn) {
	s.prepare()
	c := newConn(s, nc)
	if !s.addConn(c) {
		nc.Close()
		return
	}
	defer s.removeConn(c)
	c.serve()
}

// handlePanic reports a panic of the handler.
func (s *Server) handlePanic(v any) {
	if s.OnPanic == nil {
		log.Printf("http1: panic in a handler: %v\n%s", v, debug.Stack())
		return
	}
	s.OnPanic(v)
}

// addConn registers c. It returns false if the server is closed.
func (s *Server) addConn(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	s.connCount.Add(1)
	if s.monitorStop == nil {
		done := make(chan struct{})
		s.monitorStop = done
		s.monitorGroup.Go(func() { s.monitorClients(done) })
	}
	return true
}

// removeConn removes c, which has ended or has been handed over.
func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	_, open := s.conns[c]
	delete(s.conns, c)
	s.mu.Unlock()
	if open {
		s.connCount.Add(-1)
	}
}

// appendConns appends all registered connections to the slice.
func (s *Server) appendConns(to []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		to = append(to, c)
	}
	return to
}
