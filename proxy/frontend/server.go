// Package frontend accepts client connections and passes their requests to a handler.
// It is independent of routes and limits.
//
// A [Server] accepts connections from any number of listeners, with or
// without TLS, and with the PROXY protocol from trusted load balancers
// (server.go). Package http1 serves HTTP/1.1, and package http2 serves HTTP/2. A handler
// that knows only net/http serves HTTP/1.1 alone.
//
// A client that resets most of its HTTP/2 requests (rapid reset) loses its connection,
// and further connections from its address are delayed (reset_tracker.go).
//
// [Certificates] come from files and from an [Issuer] (certificates.go). Their expiry
// times are exported as a metric (certificates.go). ACME challenges are served before any
// route (certificates.go).
//
// [Server.Drain] shuts a server down without losing a request (server.go,
// backlog_linux.go). It accepts the connections that are already in the backlog.
// Each response then announces the end of its connection, and idle connections are
// closed last.
package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"
	"github.com/pires/go-proxyproto"
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
)

// A Server accepts connections from listeners and passes their requests to a handler.
// It enforces the timeouts of config.Listen; an upload or download may last as long as
// bytes are transferred. Package http1 serves HTTP/1.1, and package http2 HTTP/2.
type Server struct {
	http1         http1.Server
	http2         http2.Server // without a Handler if there is none
	tunnels       *http1.Tunnels
	config        config.Listen
	log           zerolog.Logger
	resetTracker  *resetTracker
	announceClose atomic.Bool    // responses announce the end of their connections
	connections   atomic.Int64   // open connections of all protocols
	balancers     bart.Lite      // that send the PROXY protocol
	badHeaders    atomic.Int64   // of the PROXY protocol
	badHeaderLog  zerolog.Logger // of these, one a minute
	accepting     sync.WaitGroup // listeners in use

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

// maxStreams is the maximum number of concurrent streams of an HTTP/2 connection.
// It also bounds the handlers that still run for streams that were reset.
const maxStreams = 250

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
	s.http2 = http2.Server{
		Handler: h, MaxHeader: int(s.config.MaxHeader), MaxFields: http1.MaxFields, MaxStreams: maxStreams,
		Timeouts:        s.http1.Timeouts,
		NewResetCounter: s.newResetCounter, OnPanic: s.http1.OnPanic,
		OnError: func(err error) { s.log.Debug().Err(err).Msg("connection error") },
	}
	if s.config.H2C {
		s.http1.HTTP2 = s.http2.ServeConn
	}
}

// A NetHTTPServer serves operators over HTTP/1.1, by a handler of net/http.
type NetHTTPServer struct{ server http.Server }

// bodyWithin is how long the body of a request may take: a little longer than operators may have to send a log.
const bodyWithin = 3*time.Minute + 10*time.Second

// NewNetHTTPServer returns a NetHTTPServer with limits and timeouts of c.
func NewNetHTTPServer(h http.Handler, c config.Listen) *NetHTTPServer {
	bounded := func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody { // the ReadTimeout of net/http would end streams of events too
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyWithin)) // if it fails, so does Read
		}
		h.ServeHTTP(w, r)
	}
	return &NetHTTPServer{http.Server{Handler: http.HandlerFunc(bounded), ReadHeaderTimeout: c.Timeouts.Header, IdleTimeout: c.Timeouts.Idle, MaxHeaderBytes: int(c.MaxHeader)}}
}

// Serve serves connections without TLS from l until Drain. It closes l.
func (s *NetHTTPServer) Serve(l net.Listener) error {
	if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// ServeTLS serves TLS connections from l until Drain, as Server.ServeTLS does. It closes l.
func (s *NetHTTPServer) ServeTLS(l net.Listener, c *Certificates, roots *x509.CertPool) error {
	return s.Serve(tls.NewListener(l, c.TLSConfig(roots, http1Protocols()...)))
}

// Drain stops accepting connections, and waits for requests in progress until ctx is done.
func (s *NetHTTPServer) Drain(ctx context.Context) error { return s.server.Shutdown(ctx) }

// NewHTTP1Server returns a Server for a handler of HTTP/1.1 alone, whose clients do not close their sending side before
// they have the response: one that does is gone. It has the limits of c, without what is offered to other clients only.
func NewHTTP1Server(h http1.Handler, c config.Listen, log zerolog.Logger) *Server {
	c.ProxyProtocol = nil
	s := newServer(h, c, log)
	s.http1.HalfClose = http1.AbortOnHalfClose
	return s
}

// newServer returns a Server without HTTP/2.
func newServer(h http1.Handler, c config.Listen, log zerolog.Logger) *Server {
	s := &Server{config: c, log: log, badHeaderLog: log.Sample(oneAMinute()), tunnels: new(http1.Tunnels), resetTracker: newResetTracker()}
	for _, p := range c.ProxyProtocol {
		s.balancers.Insert(p.Masked())
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.http1 = http1.Server{
		Handler: h,
		Limits:  http1.Limits{Target: int(c.MaxHeader), Head: int(c.MaxHeader), Fields: http1.MaxFields},
		Timeouts: http1.Timeouts{
			Header: c.Timeouts.Header, Body: c.Timeouts.Body, Write: c.Timeouts.Write, Idle: c.Timeouts.Idle,
		},
		OnPanic: func(v any) {
			log.Error().Interface("error", v).Bytes("stack", debug.Stack()).Msg("panic in a request")
		},
	}
	return s
}

// Serve serves connections without TLS from l until Drain: HTTP/1.1, and HTTP/2 with
// prior knowledge if the configuration allows it. It closes l.
func (s *Server) Serve(l net.Listener) error { return s.serve(l, s.http1.ServeConn) }

// ServeTLS serves TLS connections from l until Drain: HTTP/1.1 or HTTP/2, negotiated by
// ALPN. With roots, clients must present a certificate that is signed by one of them. It
// closes l.
func (s *Server) ServeTLS(l net.Listener, c *Certificates, roots *x509.CertPool) error {
	var protocols []string // all
	if s.http2.Handler == nil {
		protocols = http1Protocols()
	}
	config := c.TLSConfig(roots, protocols...)
	return s.serve(l, func(c net.Conn) { s.handshake(c, config) })
}

func (s *Server) serve(l net.Listener, conn func(net.Conn)) error {
	if !s.addListener(l) {
		return nil
	}
	defer s.accepting.Done()
	return s.accept(l, conn)
}

// oneAMinute returns a sampler that lets one message of a kind pass in a minute, however many there are.
func oneAMinute() zerolog.Sampler { return &zerolog.BurstSampler{Burst: 1, Period: time.Minute} }

// accept accepts connections from l and serves each of them on its own goroutine.
func (s *Server) accept(l net.Listener, serve func(net.Conn)) error {
	pause := time.Duration(0)
	log := s.log.Sample(oneAMinute())
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.connections.Add(1)
			go func() {
				defer s.connections.Add(-1)
				if client, ok := s.behindBalancer(c); ok {
					s.resetTracker.delay(s.ctx, client)
					serve(client)
				}
			}()
		case !errors.Is(err, net.ErrClosed): // most likely too many open files: wait until other connections end
			log.Error().Err(err).Msg("cannot accept connections")
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			<-time.After(pause)
		case s.announceClose.Load(): // by Drain
			return nil
		default:
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
	}
}

const (
	// acceptBacklogTimeout is how long a listener stays open to accept the connections
	// in its backlog.
	acceptBacklogTimeout = time.Second
	// handshakeGrace is how long a TCP handshake in progress may take.
	handshakeGrace = 300 * time.Millisecond
	// lastResponseWait is how long connections in use can carry one more response,
	// which announces the end of the connection, before idle connections are closed.
	lastResponseWait = time.Second
)

// AnnounceClose makes every response announce the end of its connection: HTTP/1.1 by
// Connection: close, HTTP/2 by GOAWAY. The server still accepts connections, for
// example until a load balancer has noticed that it shuts down.
func (s *Server) AnnounceClose() {
	s.announceClose.Store(true)
	s.http1.DisableKeepAlives()
	s.http2.AnnounceClose()
}

// Drain shuts the server down gracefully (graceful shutdown). It accepts the connections in the backlog and
// no more. It calls AnnounceClose, closes idle connections, and waits for requests in
// progress until ctx is done; then it closes the connections that are left and returns
// an error. WebSockets that are left are closed with status 1001, which is no error. A
// connection is closed only some time after its client was informed, so that no request in
// transit is lost.
func (s *Server) Drain(ctx context.Context) error {
	s.AnnounceClose()
	s.mu.Lock()
	s.closed = true // no more listeners are added
	s.mu.Unlock()
	for _, l := range s.listeners {
		s.closeListener(l)
	}
	s.accepting.Wait() // afterwards all accepted connections are counted
	s.waitForConnections(ctx)
	s.stop()
	streams, closeStreams := context.WithCancel(context.WithoutCancel(ctx))
	defer closeStreams()
	ended := make(chan error, 1)
	go func() { ended <- s.http2.Shutdown(streams) }()
	tunnelsEnded := make(chan struct{})
	go func() {
		s.tunnels.Drain(ctx)
		close(tunnelsEnded)
	}()
	stop := context.AfterFunc(ctx, func() {
		<-tunnelsEnded // some are streams
		closeStreams()
	})
	defer stop()
	err := errors.Join(s.http1.Shutdown(streams), <-ended)
	<-tunnelsEnded
	s.waitForConnections(context.Background())        // their requests are logged
	if err != nil && !errors.Is(err, net.ErrClosed) { // the listeners are closed
		return fmt.Errorf("requests aborted at the end of the drain timeout: %w", err)
	}
	return nil
}

// waitForConnections waits until no connection is open, at most for lastResponseWait.
func (s *Server) waitForConnections(ctx context.Context) {
	waitUntil(ctx, lastResponseWait, func() bool { return s.connections.Load() == 0 })
}

// closeListener closes l when its accept backlog is empty, because the kernel resets
// the connections in it. If another process listens on the same port, l first stops
// getting new connections.
func (s *Server) closeListener(l net.Listener) {
	if s.config.ReusePort {
		dropSYN(l)
		<-time.After(handshakeGrace)
	}
	waitUntil(context.Background(), acceptBacklogTimeout, func() bool { return !pending(l) })
	l.Close()
}

// waitUntil waits until done returns true, at most for the timeout.
func waitUntil(ctx context.Context, timeout time.Duration, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = http1.WaitUntil(ctx, time.Millisecond, done)
}

// addListener registers l. It closes l and returns false if the server is closed.
func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = l.Close()
		return false
	}
	s.listeners = append(s.listeners, l)
	s.accepting.Add(1)
	return true
}

// handshake performs the TLS handshake on c, and serves the negotiated protocol (ALPN).
func (s *Server) handshake(c net.Conn, config *tls.Config) {
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Timeouts.Handshake)
	defer cancel()
	t := http1.TLSServer(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		s.log.Debug().Err(err).Stringer("peer", c.RemoteAddr()).Msg("tls handshake failed")
		var plain tls.RecordHeaderError
		if errors.As(err, &plain) && plain.Conn != nil && isHTTP1(plain.RecordHeader[:]) {
			s.replyPlainHTTP(plain.Conn)
		}
		c.Close()
		return
	}
	cancel()
	switch t.ConnectionState().NegotiatedProtocol {
	case alpnACME:
		t.Close() // the handshake was all that the validation needs
	case "h2":
		s.http2.ServeConn(t, nil)
	default:
		s.http1.ServeConn(t)
	}
}

// isHTTP1 reports whether the first bytes of a connection are those of an HTTP/1
// request without TLS.
func isHTTP1(begin []byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}, string(begin))
}

// replyPlainHTTP sends an error response to a client that uses HTTP on a port for
// HTTPS.
func (s *Server) replyPlainHTTP(c net.Conn) {
	_ = c.SetWriteDeadline(time.Now().Add(s.config.Timeouts.Write)) // if it fails, so does Write
	_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Content-Length: 26\r\n\r\nThis is a port for HTTPS.\n")
}

// behindBalancer returns c with the client address of its PROXY protocol header, version 1 or 2, if the peer is a
// trusted load balancer. The header is mandatory there, and must arrive within the timeout for a header: otherwise c is
// closed. Of any other peer it is not accepted: it is an invalid HTTP request, which gets 400. Otherwise any client could
// choose its address. It logs the first error of each minute. A balancer that only tries to connect makes none.
func (s *Server) behindBalancer(c net.Conn) (client net.Conn, ok bool) {
	if !s.balancers.Contains(http1.PeerOf(c).Addr().Unmap().WithZone("")) {
		return c, true
	}
	behind := proxyproto.NewConn(&wholeLine{Conn: c}, proxyproto.SetReadHeaderTimeout(s.config.Timeouts.Header))
	if behind.ProxyHeader() != nil {
		return behind, true
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) { // it has closed by itself
		return c, false
	}
	s.badHeaders.Add(1)
	_, err := behind.Write(nil) // returns the error of the header
	s.badHeaderLog.Warn().Err(err).Stringer("peer", c.RemoteAddr()).Msg("no valid PROXY protocol header")
	return c, false
}

// maxLine is the maximum length of a PROXY protocol header of version 1.
const maxLine = 107

// A wholeLine is a connection whose first Read waits for the whole of such a header, which the library reads at once.
type wholeLine struct {
	net.Conn
	begun bool
}

// Raw returns the connection.
func (w *wholeLine) Raw() net.Conn { return w.Conn }

// Read implements net.Conn.
func (w *wholeLine) Read(p []byte) (n int, err error) {
	n, err = w.Conn.Read(p)
	for !w.begun && err == nil && n < maxLine && strings.HasPrefix("PROXY", string(p[:min(n, 5)])) && !bytes.Contains(p[:n], []byte("\n")) {
		var more int
		more, err = w.Conn.Read(p[n:])
		n += more
	}
	w.begun = true
	return n, err
}

// BadProxyHeaders returns how many connections were closed because the header of the PROXY protocol was
// missing or not valid.
func (s *Server) BadProxyHeaders() int64 { return s.badHeaders.Load() }
