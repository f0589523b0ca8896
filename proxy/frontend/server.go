package frontend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	stdlog "log"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
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
// bytes are transferred. Package http1 serves HTTP/1.1. Package http2 serves HTTP/2 for a
// Handler, and net/http does so for other handlers.
type Server struct {
	http1         http1.Server
	http2         *http2.Server // nil if netHTTP serves HTTP/2
	netHTTP       http.Server
	handover      *handover // passes connections to netHTTP
	config        config.Listen
	log           zerolog.Logger
	resetTracker  *resetTracker
	announceClose atomic.Bool    // responses announce the end of their connections
	connections   atomic.Int64   // open connections of all protocols
	accepting     sync.WaitGroup // listeners in use
	http2Once     sync.Once

	ctx  context.Context // done when the server stops
	stop context.CancelFunc

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	closed    bool // no more listeners can be added
}

// A Handler serves requests of both protocols.
type Handler interface {
	HTTP1Handler
	http2.Handler
}

// An HTTP1Handler serves requests of HTTP/1.1 as an Exchange, and others as a handler of
// net/http.
type HTTP1Handler interface {
	http.Handler
	ServeHTTP1(x *http1.Exchange)
	// RefuseHTTP1 responds to a request that could not be parsed.
	RefuseHTTP1(x *http1.Exchange, err error)
}

// NetHTTP2 returns h as a handler that net/http serves over HTTP/2.
func NetHTTP2(h Handler) HTTP1Handler { return struct{ HTTP1Handler }{h} }

const (
	// maxStreams is the maximum number of concurrent streams of an HTTP/2 connection.
	// It also bounds the handlers that still run for streams that were reset.
	maxStreams = 250
	// maxFrameSize is the maximum size of a received HTTP/2 frame. It is the minimum
	// that every implementation must accept (RFC 9113 section 4.2), so that frames use
	// little memory.
	maxFrameSize = 16 << 10
	// pingTimeout is how long an HTTP/2 client with requests in progress may be silent
	// before it gets a PING.
	pingTimeout = 30 * time.Second
	// maxHeaderFields is the maximum number of field lines of a request.
	maxHeaderFields = 1024
)

// NewServer returns a Server with the limits, timeouts and protocols of c. If h is an
// HTTP1Handler, it gets HTTP/1.1 requests as an Exchange, and if it is a Handler, HTTP/2
// requests as a Stream; otherwise they are converted for net/http. Messages of net/http go
// to log.
func NewServer(h http.Handler, c config.Listen, log zerolog.Logger) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(c.H2C)
	s := &Server{config: c, log: log, resetTracker: newResetTracker(), handover: newHandover()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.http1 = http1.Server{
		Handler:           fromNetHTTP(h),
		Limits:            http1.Limits{Target: int(c.MaxHeader), Head: int(c.MaxHeader), Fields: maxHeaderFields},
		Timeouts:          http1.Timeouts{Header: c.Timeouts.Header, Body: c.Timeouts.Body, Write: c.Timeouts.Write, Idle: c.Timeouts.Idle},
		FlushAfterHandler: true,
		OnPanic: func(v any) {
			log.Error().Interface("error", v).Bytes("stack", debug.Stack()).Msg("panic in a request")
		},
	}
	if own, ok := h.(HTTP1Handler); ok {
		s.http1.Handler, s.http1.ErrorHandler = own.ServeHTTP1, own.RefuseHTTP1
	}
	if c.H2C {
		s.http1.HTTP2 = s.serveHTTP2
	}
	if own, ok := h.(http2.Handler); ok {
		s.http2 = &http2.Server{
			Handler: own, MaxHeader: int(c.MaxHeader), MaxFields: maxHeaderFields, MaxStreams: maxStreams, Timeouts: s.http1.Timeouts,
			NewResetCounter: s.newResetCounter, OnPanic: s.http1.OnPanic,
			OnError: func(err error) { log.Debug().Err(err).Msg("connection error") },
		}
	}
	s.netHTTP = http.Server{
		Handler:           withConnState(s.withAnnounceClose(h)),
		ReadHeaderTimeout: c.Timeouts.Header,
		IdleTimeout:       c.Timeouts.Idle,
		MaxHeaderBytes:    int(c.MaxHeader),
		Protocols:         protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			MaxReadFrameSize:     maxFrameSize,
			SendPingTimeout:      pingTimeout,
			WriteByteTimeout:     c.Timeouts.Write,
		},
		ConnContext: s.withConn,
		ConnState:   s.countConn,
		ErrorLog:    stdlog.New(serverLog{log}, "", 0),
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
	h := &handshaker{
		config: c, timeout: s.config.Timeouts.Handshake, writeTimeout: s.config.Timeouts.Write, log: s.log,
		http1: s.http1.ServeConn, http2: s.serveHTTP2,
	}
	return s.accept(s.proxyProtocol(l), func(c net.Conn) {
		s.resetTracker.delay(s.ctx, c)
		h.handshake(s.ctx, c)
	})
}

func (s *Server) proxyProtocol(l net.Listener) net.Listener {
	return proxyProtocol(l, s.config.ProxyProtocol, s.config.Timeouts.Header)
}

// accept accepts connections from l and serves each of them on its own goroutine.
func (s *Server) accept(l net.Listener, serve func(net.Conn)) error {
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.connections.Add(1)
			go func() {
				defer s.connections.Add(-1)
				serve(c)
			}()
		case errors.Is(err, net.ErrClosed):
			return s.serveError(l, err)
		default: // most likely too many open files: wait until other connections end
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		}
	}
}

// serveHTTP2 serves a connection that uses HTTP/2. If it passes it to net/http, the
// connection is counted until countConn is called at its end.
func (s *Server) serveHTTP2(c net.Conn) {
	if s.http2 != nil {
		s.http2.ServeConn(c)
		return
	}
	s.http2Once.Do(func() { go func() { _ = s.netHTTP.Serve(s.handover) }() })
	s.connections.Add(1)
	if !s.handover.deliver(c) {
		s.connections.Add(-1)
	}
}

// A serverLog receives the log of net/http. All messages are caused by clients, except
// panics.
type serverLog struct{ log zerolog.Logger }

func (s serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "panic") {
		s.log.Error().Str("error", text).Msg("panic in a request")
	} else {
		s.log.Debug().Str("error", text).Msg("connection error")
	}
	return len(line), nil
}
