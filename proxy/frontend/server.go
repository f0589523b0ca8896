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
)

// A Server takes requests from listeners to a handler, within bounds of what a
// client may take its time for. Uploads and downloads may last as long as bytes
// flow. HTTP/1.1 is http1's, and HTTP/2 net/http's.
type Server struct {
	http1         http1.Server
	http2         http.Server
	handover      *handover // connections that speak HTTP/2
	config        config.Listen
	log           zerolog.Logger
	resetTracker  *resetTracker
	announceClose atomic.Bool    // answers say that their connections end
	connections   atomic.Int64   // accepted and not closed, of every protocol
	accepting     sync.WaitGroup // listeners that are served
	http2Once     sync.Once

	ctx  context.Context // ends when no connection is taken any more
	stop context.CancelFunc

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	closed    bool // no listener is served any more
}

// A Handler takes requests of both protocols.
type Handler interface {
	http.Handler
	ServeHTTP1(x *http1.Exchange)
	// RejectHTTP1 answers what could not be read as a request.
	RejectHTTP1(x *http1.Exchange, why error)
}

const (
	// maxStreams is how many requests one HTTP/2 connection may have in progress.
	// Of those that a client has taken back, no more are worked on than that.
	maxStreams = 100
	// maxFrameSize is how long a frame of HTTP/2 may be: no longer than anybody may
	// send unasked (RFC 9113 section 4.2), so that one costs no more memory.
	maxFrameSize = 16 << 10
	// pingTimeout is how long an HTTP/2 client may say nothing while it has requests
	// in progress before it is asked whether it is still there.
	pingTimeout = 30 * time.Second
	// maxHeaderFields is how many lines the header of a request may have.
	maxHeaderFields = 1024
)

// NewServer makes a Server with the bounds of c and the protocols that it allows. A
// Handler gets requests of HTTP/1.1 as they are. What net/http has to complain about
// goes to log.
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
	if own, ok := h.(Handler); ok {
		s.http1.Handler, s.http1.ErrorHandler = own.ServeHTTP1, own.RejectHTTP1
	}
	if c.H2C {
		s.http1.HTTP2 = s.serveHTTP2
	}
	s.http2 = http.Server{
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

// fromNetHTTP is h for requests of HTTP/1.1. A response that h does not begin is an
// empty one, as with net/http.
func fromNetHTTP(h http.Handler) http1.Handler {
	return func(x *http1.Exchange) {
		x.ServeNetHTTP(&http1.Context{Exchange: x}, h)
		if !x.Committed() {
			x.Begin(http.StatusOK)
			_ = x.Send(nil) // the client may have left
		}
	}
}

// Serve takes requests from l until Drain: HTTP/1, and HTTP/2 with prior
// knowledge if the configuration allows it. It owns l.
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

// ServeTLS takes requests in TLS from l until Drain: HTTP/1, and HTTP/2 from
// clients that ask for it. It owns l.
func (s *Server) ServeTLS(l net.Listener, c *Certificates) error { return s.serveTLS(l, c.config()) }

// ServeMutualTLS is ServeTLS for clients with a certificate that one of roots has signed.
func (s *Server) ServeMutualTLS(l net.Listener, c *Certificates, roots *x509.CertPool) error {
	return s.serveTLS(l, c.mutualConfig(roots))
}

func (s *Server) serveTLS(l net.Listener, c *tls.Config) error {
	if !s.addListener(l) {
		return nil
	}
	defer s.accepting.Done()
	h := &handshaker{
		config: c, timeout: s.config.Timeouts.Header, writeTimeout: s.config.Timeouts.Write, log: s.log,
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

// accept accepts connections from l and serves each on a goroutine of its own.
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
		default: // too many open files, most likely: others may end meanwhile
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		}
	}
}

// serveHTTP2 gives net/http a connection that speaks HTTP/2, which counts until countConn
// hears of its end.
func (s *Server) serveHTTP2(c net.Conn) {
	s.http2Once.Do(func() { go func() { _ = s.http2.Serve(s.handover) }() })
	s.connections.Add(1)
	if !s.handover.deliver(c) {
		s.connections.Add(-1)
	}
}

// serverLog are net/http's own log lines: a client's doing, all but panics.
type serverLog struct{ log zerolog.Logger }

func (c serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "panic") {
		c.log.Error().Str("error", text).Msg("panic in a request")
	} else {
		c.log.Debug().Str("error", text).Msg("connection error")
	}
	return len(line), nil
}
