package proxy

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/proxy/config"
)

// A Server takes requests from listeners to a handler, within bounds of what a
// client may take its time for. Uploads and downloads may last as long as bytes
// flow.
type Server struct {
	http   http.Server
	bounds config.Listen
}

// NewServer makes a Server with the timeouts and sizes of c. What net/http has
// to complain about goes to log.
func NewServer(h http.Handler, c config.Listen, log zerolog.Logger) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Server{bounds: c, http: http.Server{
		Handler:           framed(h),
		ReadHeaderTimeout: c.Timeouts.Header,
		IdleTimeout:       c.Timeouts.Idle,
		MaxHeaderBytes:    int(c.MaxHeader),
		Protocols:         protocols,
		ConnContext:       withConn,
		ConnState:         idles,
		ErrorLog:          stdlog.New(complaints{log}, "", 0),
	}}
}

// Serve takes requests from l until Drain. It owns l.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(watched{l, s.bounds.Timeouts.Write})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

// A watched listener watches over its connections; see conn.
type watched struct {
	net.Listener
	stall time.Duration
}

func (l watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newConn(c, l.stall), nil
}

// Drain stops taking connections, lets requests under way end until ctx is
// done, and then cuts those that have not.
func (s *Server) Drain(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close()
		return fmt.Errorf("requests cut off after the time to drain: %w", err)
	}
	return nil
}

// complaints are net/http's own log lines: a client's doing, all but panics.
type complaints struct{ log zerolog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "panic") {
		c.log.Error().Str("error", text).Msg("panic in a request")
	} else {
		c.log.Debug().Str("error", text).Msg("connection")
	}
	return len(line), nil
}
