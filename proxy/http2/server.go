package http2

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
)

// A Handler responds to requests.
type Handler interface {
	// BeginHTTP2 is called when the head of a request has been received, on the
	// goroutine that reads the connection, so it must not wait for anything. It returns
	// false if it has responded. Otherwise ServeHTTP2 is called on a goroutine of its
	// own, and must respond. When the last of the two returns, neither s nor any string
	// of s may be used any more.
	BeginHTTP2(s *Stream) bool
	ServeHTTP2(s *Stream)
}

// A ResetCounter counts the requests of a connection that its client has reset.
type ResetCounter interface {
	// Completed counts a request that was not reset.
	Completed()
	// Reset counts a request that was reset. It returns how many of its requests the
	// connection may reset, as long as they are not more than half of all.
	Reset() (most int)
}

// A Server serves HTTP/2 connections. Its fields must be set before the first connection
// is served and must not be changed afterwards.
type Server struct {
	Handler Handler
	// MaxHeader is the maximum size of a header list as defined in RFC 9113 section
	// 6.5.2, by default 32 KiB; MaxFields is the maximum number of its lines, by default
	// 128. MaxStreams is the maximum number of concurrent requests of a connection, by
	// default 100.
	MaxHeader, MaxFields, MaxStreams int
	// Timeouts bound waiting for a client. Header is for the beginning of a connection
	// and for a whole head, Write for a part of a response, Idle for a connection
	// without requests. Body does not apply; see Stream.SetReadDeadline.
	Timeouts http1.Timeouts
	// Budget bounds the memory of request bodies that were received and not read, beyond 16 KiB
	// of each connection. If it is nil, a connection may hold 1 MiB.
	Budget Budget
	// NewResetCounter returns the counter for a new connection. If it is nil, clients
	// may reset any number of requests.
	NewResetCounter func(net.Conn) ResetCounter
	// OnPanic is called with the value that a Handler panicked with. The stream is reset.
	OnPanic func(v any)
	// OnError is called with the error for which a connection was closed.
	OnError func(err error)

	setupOnce     sync.Once
	names         nameTable
	date          dateCache
	inputs        sync.Pool // of *[inputSize]byte
	outputs       sync.Pool // of *[outputSize]byte
	streams       sync.Pool // of *Stream
	blocks        sync.Pool // of *[]byte, for header blocks while they are decoded
	announceClose atomic.Bool

	mu     sync.Mutex // guards what follows
	conns  map[*conn]struct{}
	closed bool // Shutdown was called
}

func (s *Server) prepare() {
	s.setupOnce.Do(func() {
		for _, d := range []struct {
			field     *int
			otherwise int
		}{{&s.MaxHeader, 32 << 10}, {&s.MaxFields, 128}, {&s.MaxStreams, 100}} {
			if *d.field <= 0 {
				*d.field = d.otherwise
			}
		}
		s.names = newNameTable()
		s.conns = map[*conn]struct{}{}
	})
}

// ServeConn serves a connection on which HTTP/2 was negotiated by TLS, or which begins
// with the connection preface. It returns when the connection has ended and all its
// handlers have returned.
func (s *Server) ServeConn(nc net.Conn) {
	s.prepare()
	c := newConn(s, nc)
	if !s.add(c) {
		_ = nc.Close()
		return
	}
	defer s.remove(c)
	c.serve()
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// appendConns appends the connections to dst.
func (s *Server) appendConns(dst []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		dst = append(dst, c)
	}
	return dst
}

// A dateCache holds the value of Date, rendered once a second.
type dateCache struct{ current atomic.Pointer[renderedDate] }

type renderedDate struct {
	second int64
	text   string
}

// at returns the value for a time.
func (d *dateCache) at(now time.Time) string {
	r := d.current.Load()
	if r == nil || r.second != now.Unix() {
		r = &renderedDate{now.Unix(), now.UTC().Format(timeFormat)}
		d.current.Store(r)
	}
	return r.text
}

// timeFormat is the format of Date (RFC 9110 section 5.6.7).
const timeFormat = "Mon, 02 Jan 2006 15:04:05 GMT"
