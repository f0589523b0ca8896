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
)

// Bounds of what a client may take its time for. Uploads and downloads may last
// as long as bytes flow.
const (
	headerWithin = 10 * time.Second // a request's header
	idleWithin   = 2 * time.Minute  // between requests on one connection
	headerBytes  = 64 << 10         // of a request's header
)

// A Server takes HTTP/1.1 requests from a listener to a handler.
type Server struct{ http http.Server }

// NewServer makes a Server with bounds for slow and large headers. What
// net/http has to complain about goes to log.
func NewServer(h http.Handler, log zerolog.Logger) *Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Server{http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWithin,
		IdleTimeout:       idleWithin,
		MaxHeaderBytes:    headerBytes,
		Protocols:         protocols,
		// OPTIONS * is for a route or for nobody, not for net/http to answer.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     stdlog.New(complaints{log}, "", 0),
	}}
}

// Serve takes requests from l until Drain. It owns l.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
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
