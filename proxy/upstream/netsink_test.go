package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// errNoUpgrade reports that an HTTP/2 connection cannot be handed over.
var errNoUpgrade = errors.New("HTTP/2 connection cannot be handed over")

// An HTTP2Sink is a Sink that writes to a server of net/http, with which tests stand for a client that
// another server than that of HTTP/1.1 serves.
type HTTP2Sink struct {
	ctx       context.Context // done when the client is gone
	stop      func() bool
	aborted   chan struct{}
	w         http.ResponseWriter
	trailers  []string // names of trailer fields that may follow
	committed bool
}

// NewHTTP2Sink returns a Sink that writes to w.
func NewHTTP2Sink(ctx context.Context, w http.ResponseWriter) *HTTP2Sink {
	return &HTTP2Sink{ctx: ctx, w: w}
}

// AbortWith makes the end of the context call a.Abort.
func (s *HTTP2Sink) AbortWith(a http1.Aborter) {
	if a == nil {
		if !s.stop() {
			<-s.aborted
		}
		return
	}
	s.aborted = make(chan struct{})
	s.stop = context.AfterFunc(s.ctx, func() { a.Abort(); close(s.aborted) })
}

// Informational implements Sink.
func (s *HTTP2Sink) Informational(status int, f *http1.Fields) {
	h := s.w.Header()
	for line := range f.All() {
		mapHeader(h).Add(line.Name, line.Value)
	}
	s.w.WriteHeader(status)
	clear(h)
}

// Begin implements Sink.
func (s *HTTP2Sink) Begin(status int, f *http1.Fields, length int64) error {
	h := s.w.Header()
	for line := range f.All() {
		mapHeader(h).Add(line.Name, line.Value)
	}
	if length >= 0 {
		h["Content-Length"] = []string{strconv.FormatInt(length, 10)}
	}
	if len(s.trailers) > 0 {
		h["Trailer"] = []string{strings.Join(s.trailers, ", ")}
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // prevents that net/http guesses one
	}
	s.committed = true
	s.w.WriteHeader(status)
	if len(s.trailers) > 0 && length < 0 {
		return s.Flush() // otherwise net/http adds Content-Length to a short body, and some clients ignore a trailer section after that
	}
	return nil
}

// Write implements Sink.
func (s *HTTP2Sink) Write(p []byte) (int, error) { return s.w.Write(p) }

// Flush implements Sink.
func (s *HTTP2Sink) Flush() error { return http.NewResponseController(s.w).Flush() }

// End implements Sink. net/http sends the trailer when its handler returns.
func (s *HTTP2Sink) End(trailer *http1.Fields) error {
	h := s.w.Header()
	for line := range trailer.All() {
		name := http.CanonicalHeaderKey(line.Name)
		switch {
		case !trailerAllowed(name):
		case slices.Contains(s.trailers, name):
			mapHeader(h).Add(name, line.Value)
		default:
			h.Add(http.TrailerPrefix+strings.Clone(name), strings.Clone(line.Value))
		}
	}
	return nil
}

// SwitchProtocols implements Sink. It fails, because an HTTP/2 connection carries
// several requests.
func (s *HTTP2Sink) SwitchProtocols(string, *http1.Fields) (net.Conn, []byte, error) {
	return nil, nil, errNoUpgrade
}

// Committed implements Sink.
func (s *HTTP2Sink) Committed() bool { return s.committed }
