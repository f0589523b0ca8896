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
	// Refuse answers a request that could not be read; without it the client gets
	// the status and a line of text. The connection ends in any case.
	Refuse func(x *Exchange, why error)
	// HTTP2 takes a connection that begins with the preface of HTTP/2. Without it
	// such a connection is refused.
	HTTP2 func(net.Conn)
	// Panicked is told of what a Handler has panicked with, by default the standard
	// logger. The connection ends.
	Panicked func(v any)
	// Closed is told when a connection has ended, and why: nil if that was in
	// order.
	Closed func(c net.Conn, why error)
	// EndsLate lets what ends a response be sent when its handler has returned, and
	// not before: what the handler has done has happened then for who reads the
	// response.
	EndsLate bool
	// HalfClosed says what a client that sends no more means by that.
	HalfClosed HalfClosed

	setup       sync.Once
	memory      memory
	exchanges   sync.Pool // of *Exchange
	epoch       time.Time
	date        date
	parting     atomic.Bool // clients are told that their connections end
	connections atomic.Int64

	mu        sync.Mutex // guards what follows
	open      map[*conn]struct{}
	listeners map[net.Listener]struct{}
	sweeping  chan struct{} // closed to end the sweep; nil if there is none
	swept     sync.WaitGroup
	over      bool // no connection is taken any more
}

// HalfClosed is what the end of a client's sending means while its request is in
// work. It is how a client leaves, and how one ends that sends nothing more and
// waits for the response (RFC 9112 section 9.6): the two cannot be told apart.
type HalfClosed uint8

// What it can mean.
const (
	// Waits means that only a reset connection says that the client has left. It is
	// asked once, before the response, by a 100 Continue; and a response of which
	// nothing comes for Timeouts.Write, on such a connection, is given up.
	Waits  HalfClosed = iota
	Leaves            // it has left, if the exchange has already taken some time
)

// prepare makes s ready for its first connection.
func (s *Server) prepare() {
	s.setup.Do(func() {
		s.Limits = s.Limits.withDefaults()
		s.epoch = time.Now()
		s.open = map[*conn]struct{}{}
		s.listeners = map[net.Listener]struct{}{}
		s.exchanges.New = func() any { return new(Exchange) }
	})
}

// now is the time since the server began.
func (s *Server) now() time.Duration { return time.Since(s.epoch) }

// Connections is how many connections there are.
func (s *Server) Connections() int { return int(s.connections.Load()) }

// Serve takes connections from l until Shutdown or Close, and then returns nil. It
// owns l.
func (s *Server) Serve(l net.Listener) error {
	s.prepare()
	if !s.listen(l) {
		l.Close()
		return nil
	}
	defer s.unlisten(l)
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			go s.ServeConn(c)
		case s.parting.Load() || errors.Is(err, net.ErrClosed):
			return s.unlessOver(err)
		default: // too many open files, most likely: the others may end meanwhile
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		}
	}
}

func (s *Server) unlessOver(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	return err
}

func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.listeners[l] = struct{}{}
	}
	return !s.over
}

func (s *Server) unlisten(l net.Listener) {
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
	if !s.enter(c) {
		nc.Close()
		return
	}
	defer s.leave(c)
	c.serve()
}

// panicked tells of a handler that has panicked.
func (s *Server) panicked(v any) {
	if s.Panicked == nil {
		log.Printf("http1: panic in a handler: %v\n%s", v, debug.Stack())
		return
	}
	s.Panicked(v)
}

// enter notes that there is c, unless no connection is taken any more.
func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.open[c] = struct{}{}
	s.connections.Add(1)
	if s.sweeping == nil {
		done := make(chan struct{})
		s.sweeping = done
		s.swept.Go(func() { s.sweep(done) })
	}
	return true
}

// leave forgets c, which has ended or is somebody else's.
func (s *Server) leave(c *conn) {
	s.mu.Lock()
	_, open := s.open[c]
	delete(s.open, c)
	s.mu.Unlock()
	if open {
		s.connections.Add(-1)
	}
}

// current are the connections there are.
func (s *Server) current(to []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		to = append(to, c)
	}
	return to
}
