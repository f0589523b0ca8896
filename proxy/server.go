package proxy

import (
	"context"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
)

// A Server takes requests from listeners to a handler, within bounds of what a
// client may take its time for. Uploads and downloads may last as long as bytes
// flow.
type Server struct {
	http        http.Server
	bounds      config.Listen
	log         zerolog.Logger
	offenders   *offenders
	parting     atomic.Bool // clients are told that their connections end
	connections atomic.Int64

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
}

const (
	// streams is how many requests one HTTP/2 connection may have under way. Of
	// those that a client has taken back, no more are worked on than that.
	streams = 100
	// frameSize is how long a frame of HTTP/2 may be: no longer than anybody may
	// send unasked (RFC 9113 section 4.2), so that one costs no more memory.
	frameSize = 16 << 10
	// pingAfter is how long an HTTP/2 client may say nothing while it has requests
	// under way before it is asked whether it is still there.
	pingAfter = 30 * time.Second
)

// NewServer makes a Server with the bounds of c and the protocols that it allows.
// What net/http has to complain about goes to log.
func NewServer(h http.Handler, c config.Listen, log zerolog.Logger) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(c.H2C)
	s := &Server{bounds: c, log: log, offenders: newOffenders()}
	s.http = http.Server{
		Handler:           overLinks(s.overParting(h)),
		ReadHeaderTimeout: c.Timeouts.Header,
		IdleTimeout:       c.Timeouts.Idle,
		MaxHeaderBytes:    int(c.MaxHeader),
		Protocols:         protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams,
			MaxReadFrameSize:     frameSize,
			SendPingTimeout:      pingAfter,
			WriteByteTimeout:     c.Timeouts.Write,
		},
		ConnContext: s.linked,
		ConnState:   s.counted,
		ErrorLog:    stdlog.New(complaints{log}, "", 0),
	}
	return s
}

// Serve takes requests from l until Drain: HTTP/1, and HTTP/2 with prior
// knowledge if the configuration allows it. It owns l.
func (s *Server) Serve(l net.Listener) error {
	s.open(l)
	return s.serve(watched{s.introduced(l), s.bounds.Timeouts.Write, s.offenders})
}

// ServeTLS takes requests in TLS from l until Drain: HTTP/1, and HTTP/2 from
// clients that ask for it. It owns l.
func (s *Server) ServeTLS(l net.Listener, c *Certificates) error {
	s.open(l)
	h := &handshaker{
		Listener: s.introduced(l),
		config:   c.config(),
		within:   s.bounds.Timeouts.Header,
		stall:    s.bounds.Timeouts.Write,
		waits:    s.offenders.keepWaiting,
		log:      s.log,
	}
	return s.serve(h.start())
}

func (s *Server) introduced(l net.Listener) net.Listener {
	return introduced(l, s.bounds.ProxyProtocol, s.bounds.Timeouts.Header)
}

func (s *Server) serve(l net.Listener) error {
	return s.ended(l, s.http.Serve(l))
}

// A watched listener watches over its connections; see conn.
type watched struct {
	net.Listener
	stall     time.Duration
	offenders *offenders
}

func (l watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	watched := newConn(c, l.stall)
	watched.first = func() { l.offenders.keepWaiting(context.Background(), c) }
	return watched, nil
}

// complaints are net/http's own log lines: a client's doing, all but panics.
type complaints struct{ log zerolog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "panic") {
		c.log.Error().Str("error", text).Msg("panic in a request")
	} else {
		c.log.Debug().Str("error", text).Msg("connection error")
	}
	return len(line), nil
}
