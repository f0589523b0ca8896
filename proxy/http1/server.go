package http1

import (
	"errors"
	"log"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// A Handler answers one request, on the goroutine of its connection. When it
// returns, the exchange has ended: neither x nor a string of it may be used any
// more. An exchange that it has not answered whole ends its connection.
type Handler func(x *Exchange)

// A Server reads requests from connections. Its fields are set before the first
// connection and not changed then.
type Server struct {
	Handler  Handler
	Limits   Limits
	Timeouts Timeouts
	// ErrorHandler answers a request that could not be read; without it the client gets
	// the status and a line of text. The connection ends in any case.
	ErrorHandler func(x *Exchange, why error)
	// HTTP2 takes a connection that begins with the preface of HTTP/2. Without it
	// such a connection is refused.
	HTTP2 func(net.Conn)
	// OnPanic is told of what a Handler has panicked with, by default the standard
	// logger. The connection ends.
	OnPanic func(v any)
	// OnClose is told when a connection has ended, and why: nil if that was in
	// order.
	OnClose func(c net.Conn, why error)
	// FlushAfterHandler lets what ends a response be sent when its handler has returned, and
	// not before: what the handler has done has happened then for who reads the
	// response.
	FlushAfterHandler bool
	// HalfClose says what a client that sends no more means by that.
	HalfClose HalfClosePolicy

	setupOnce          sync.Once
	buffers            bufferPool
	exchangePool       sync.Pool // of *Exchange
	epoch              time.Time
	date               dateCache
	keepAlivesDisabled atomic.Bool // clients are told that their connections end
	connCount          atomic.Int64

	mu           sync.Mutex // guards what follows
	conns        map[*conn]struct{}
	listeners    map[net.Listener]struct{}
	monitorStop  chan struct{} // closed to end the sweep; nil if there is none
	monitorGroup sync.WaitGroup
	closed       bool // no connection is taken any more
}

// HalfClosePolicy is what the end of a client's sending means while its request is in
// work. It is how a client leaves, and how one ends that sends nothing more and
// waits for the response (RFC 9112 section 9.6): the two cannot be told apart.
type HalfClosePolicy uint8

// What it can mean.
const (
	// AllowHalfClose means that only a reset connection says that the client has left. It is
	// asked once, before the response, by a 100 Continue; and a response of which
	// nothing comes for Timeouts.Write, on such a connection, is given up.
	AllowHalfClose   HalfClosePolicy = iota
	AbortOnHalfClose                 // it has left, if the exchange has already taken some time
)

// prepare makes s ready for its first connection.
func (s *Server) prepare() {
	s.setupOnce.Do(func() {
		s.Limits = s.Limits.withDefaults()
		s.epoch = time.Now()
		s.conns = map[*conn]struct{}{}
		s.listeners = map[net.Listener]struct{}{}
		s.exchangePool.New = func() any { return new(Exchange) }
	})
}

// now is the time since the server began.
func (s *Server) now() time.Duration { return time.Since(s.epoch) }

// Connections is how many connections there are.
func (s *Server) Connections() int { return int(s.connCount.Load()) }

// Serve takes connections from l until Shutdown or Close, and then returns nil. It
// owns l.
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
		case s.keepAlivesDisabled.Load() || errors.Is(err, net.ErrClosed):
			return s.acceptError(err)
		default: // too many open files, most likely: the others may end meanwhile
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		}
	}
}

func (s *Server) acceptError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	return err
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

// ServeConn serves one connection until it ends. TLS, if there is any, must be a
// *tls.Conn; its handshake may still have to come.
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

// handlePanic tells of a handler that has panicked.
func (s *Server) handlePanic(v any) {
	if s.OnPanic == nil {
		log.Printf("http1: panic in a handler: %v\n%s", v, debug.Stack())
		return
	}
	s.OnPanic(v)
}

// addConn notes that there is c, unless no connection is taken any more.
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

// removeConn forgets c, which has ended or is somebody else's.
func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	_, open := s.conns[c]
	delete(s.conns, c)
	s.mu.Unlock()
	if open {
		s.connCount.Add(-1)
	}
}

// appendConns are the connections there are.
func (s *Server) appendConns(to []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		to = append(to, c)
	}
	return to
}
