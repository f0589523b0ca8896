package frontend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
)

// A Server accepts connections from listeners and passes their requests to a handler.
// It enforces the timeouts of config.Listen; an upload or download may last as long as
// bytes are transferred. Package http1 serves HTTP/1.1, and package http2 HTTP/2.
type Server struct {
	http1           http1.Server
	http2           *http2.Server // nil if there is none
	tunnels         *http1.Tunnels
	config          config.Listen
	log             zerolog.Logger
	resetTracker    *resetTracker
	announceClose   atomic.Bool    // responses announce the end of their connections
	connections     atomic.Int64   // open connections of all protocols
	badHeaders      atomic.Int64   // of the PROXY protocol
	badHeaderLogged atomic.Int64   // the second in which one was logged
	accepting       sync.WaitGroup // listeners in use

	ctx  context.Context // done when the server stops
	stop context.CancelFunc

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	closed    bool // no more listeners can be added
}

// A Handler serves requests of both protocols.
type Handler interface {
	http2.Handler
	ServeHTTP1(x *http1.Exchange)
	// RefuseHTTP1 responds to a request that could not be parsed.
	RefuseHTTP1(x *http1.Exchange, err error)
	// BodyBudget returns what bounds the memory of request bodies over HTTP/2, or nil.
	BodyBudget() http2.Budget
	// Tunnels returns the tunnels of WebSockets, which Drain ends.
	Tunnels() *http1.Tunnels
}

const (
	// maxStreams is the maximum number of concurrent streams of an HTTP/2 connection.
	// It also bounds the handlers that still run for streams that were reset.
	maxStreams = 250
	// maxHeaderFields is the maximum number of field lines of a request.
	maxHeaderFields = 1024
)

// NewServer returns a Server with the limits, timeouts and protocols of c.
func NewServer(h Handler, c config.Listen, log zerolog.Logger) *Server {
	s := newServer(h.ServeHTTP1, c, log)
	s.http1.ErrorHandler = h.RefuseHTTP1
	s.setHTTP2(h)
	s.http2.Budget, s.tunnels = h.BodyBudget(), h.Tunnels()
	return s
}

// setHTTP2 makes h serve HTTP/2.
func (s *Server) setHTTP2(h http2.Handler) {
	s.http2 = &http2.Server{
		Handler: h, MaxHeader: int(s.config.MaxHeader), MaxFields: maxHeaderFields, MaxStreams: maxStreams, Timeouts: s.http1.Timeouts,
		NewResetCounter: s.newResetCounter, OnPanic: s.http1.OnPanic,
		OnError: func(err error) { s.log.Debug().Err(err).Msg("connection error") },
	}
	if s.config.H2C {
		s.http1.HTTP2 = s.http2.ServeConn
	}
}

// NewNetHTTPServer returns a Server for a handler of net/http, which serves HTTP/1.1 only.
func NewNetHTTPServer(h http.Handler, c config.Listen, log zerolog.Logger) *Server {
	return newServer(fromNetHTTP(h), c, log)
}

// NewHTTP1Server returns a Server for a handler of HTTP/1.1 alone, whose clients do not close their sending side before
// they have the response: one that does is gone.
func NewHTTP1Server(h http1.Handler, c config.Listen, log zerolog.Logger) *Server {
	s := newServer(h, c, log)
	s.http1.HalfClose = http1.AbortOnHalfClose
	return s
}

// newServer returns a Server without HTTP/2.
func newServer(h http1.Handler, c config.Listen, log zerolog.Logger) *Server {
	s := &Server{config: c, log: log, tunnels: new(http1.Tunnels), resetTracker: newResetTracker()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.http1 = http1.Server{
		Handler:           h,
		Limits:            http1.Limits{Target: int(c.MaxHeader), Head: int(c.MaxHeader), Fields: maxHeaderFields},
		Timeouts:          http1.Timeouts{Header: c.Timeouts.Header, Body: c.Timeouts.Body, Write: c.Timeouts.Write, Idle: c.Timeouts.Idle},
		FlushAfterHandler: true,
		OnPanic: func(v any) {
			log.Error().Interface("error", v).Bytes("stack", debug.Stack()).Msg("panic in a request")
		},
	}
	return s
}

// fromNetHTTP converts h into a handler for HTTP/1.1. If h starts no response, the
// client gets an empty one with status 200, as with net/http.
func fromNetHTTP(h http.Handler) http1.Handler {
	return func(x *http1.Exchange) {
		x.ServeNetHTTP(&http1.Context{Exchange: x}, h)
		if !x.Committed() {
			x.Begin(http.StatusOK)
			_ = x.Send(nil) // fails if the client is gone
		}
	}
}

// Serve serves connections without TLS from l until Drain: HTTP/1.1, and HTTP/2 with
// prior knowledge if the configuration allows it. It closes l.
func (s *Server) Serve(l net.Listener) error {
	if !s.addListener(l) {
		return nil
	}
	defer s.accepting.Done()
	return s.accept(s.proxyProtocol(l), func(c net.Conn) {
		s.resetTracker.delay(s.ctx, c)
		s.http1.ServeConn(c)
	})
}

// ServeTLS serves TLS connections from l until Drain: HTTP/1.1 or HTTP/2, negotiated by
// ALPN. It closes l.
func (s *Server) ServeTLS(l net.Listener, c *Certificates) error { return s.serveTLS(l, c.config()) }

// ServeMutualTLS is like ServeTLS, but requires client certificates that are signed by
// one of roots.
func (s *Server) ServeMutualTLS(l net.Listener, c *Certificates, roots *x509.CertPool) error {
	return s.serveTLS(l, c.mutualConfig(roots))
}

func (s *Server) serveTLS(l net.Listener, c *tls.Config) error {
	if !s.addListener(l) {
		return nil
	}
	defer s.accepting.Done()
	if s.http2 == nil {
		c = withoutHTTP2(c)
	}
	h := &handshaker{
		config: c, timeout: s.config.Timeouts.Handshake, writeTimeout: s.config.Timeouts.Write, log: s.log,
		http1: s.http1.ServeConn,
	}
	if s.http2 != nil {
		h.http2 = s.http2.ServeConn
	}
	return s.accept(s.proxyProtocol(l), func(c net.Conn) {
		s.resetTracker.delay(s.ctx, c)
		h.handshake(s.ctx, c)
	})
}

func (s *Server) proxyProtocol(l net.Listener) net.Listener {
	return proxyProtocol(l, s.config.ProxyProtocol, s.config.Timeouts.Header)
}

// acceptLogInterval is how often it is logged that connections cannot be accepted.
const acceptLogInterval = time.Minute

// accept accepts connections from l and serves each of them on its own goroutine.
func (s *Server) accept(l net.Listener, serve func(net.Conn)) error {
	pause := time.Duration(0)
	var logged time.Time
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.connections.Add(1)
			go func() {
				defer s.connections.Add(-1)
				if s.hasHeader(c) {
					serve(c)
				}
			}()
		case errors.Is(err, net.ErrClosed):
			return s.serveError(l, err)
		default: // most likely too many open files: wait until other connections end
			if time.Since(logged) >= acceptLogInterval {
				logged = time.Now()
				s.log.Error().Err(err).Msg("cannot accept connections")
			}
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		}
	}
}
