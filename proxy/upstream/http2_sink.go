package upstream

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
)

// errHandOver reports that a connection cannot be given away.
var errHandOver = errors.New("connection is not for one request alone")

// A NetSink is the Sink of a client that net/http's server serves, over HTTP/2.
type NetSink struct {
	w        http.ResponseWriter
	trailers []string // that may follow, by name
	begun    bool
}

// NewNetSink makes a Sink of w.
func NewNetSink(w http.ResponseWriter) *NetSink { return &NetSink{w: w} }

// An announcer is a sink that tells its client beforehand which trailer fields may come.
type announcer interface{ announce(names []string) }

func (s *NetSink) announce(names []string) { s.trailers = names }

// Informational implements Sink.
func (s *NetSink) Informational(status int, f *http1.Fields) {
	h := s.w.Header()
	for line := range f.All() {
		mapHeader(h).Add(line.Name, line.Value)
	}
	s.w.WriteHeader(status)
	clear(h)
}

// Begin implements Sink.
func (s *NetSink) Begin(status int, f *http1.Fields, length int64) error {
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
		h["Content-Type"] = nil // or net/http would guess one
	}
	s.begun = true
	s.w.WriteHeader(status)
	if len(s.trailers) > 0 && length < 0 {
		return s.Flush() // or net/http would say how long a short body is, and some clients read no trailer after that
	}
	return nil
}

// Write implements Sink.
func (s *NetSink) Write(p []byte) (int, error) { return s.w.Write(p) }

// Flush implements Sink.
func (s *NetSink) Flush() error { return http.NewResponseController(s.w).Flush() }

// End implements Sink. net/http sends the trailer when its handler returns.
func (s *NetSink) End(trailer *http1.Fields) error {
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

// SwitchProtocols implements Sink: over HTTP/2, no connection is one request's alone.
func (s *NetSink) SwitchProtocols(string, *http1.Fields) (net.Conn, []byte, error) {
	return nil, nil, errHandOver
}

// Committed implements Sink.
func (s *NetSink) Committed() bool { return s.begun }

// FieldsOf are the fields of a header as net/http has it.
func FieldsOf(h http.Header) *http1.Fields {
	f := new(http1.Fields)
	addAll(f, h)
	return f
}

// RequestFieldsOf are the fields of a request over HTTP/2, with the announcement of its
// trailer, which net/http has taken out.
func RequestFieldsOf(r *http.Request) *http1.Fields {
	f := FieldsOf(r.Header)
	if names := canonical(r.Trailer); len(names) > 0 {
		f.Add("Trailer", strings.Join(names, ", "))
	}
	return f
}

func addAll(f *http1.Fields, h http.Header) {
	lines, bytes := 0, 0
	for name, values := range h {
		for _, value := range values {
			lines, bytes = lines+1, bytes+len(name)+len(value)
		}
	}
	f.Grow(lines+1, bytes) // and one for a caller
	for name, values := range h {
		for _, value := range values {
			f.Add(name, value)
		}
	}
}

// canonical are the names in h.
func canonical(h http.Header) []string { return slices.Sorted(maps.Keys(h)) }
