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

// errNoUpgrade reports that a connection cannot be given away.
var errNoUpgrade = errors.New("connection is not for one request alone")

// A HTTP2Sink is the Sink of a client that net/http's server serves, over HTTP/2.
type HTTP2Sink struct {
	w         http.ResponseWriter
	trailers  []string // that may follow, by name
	committed bool
}

// NewHTTP2Sink makes a Sink of w.
func NewHTTP2Sink(w http.ResponseWriter) *HTTP2Sink { return &HTTP2Sink{w: w} }

// An announcer is a sink that tells its client beforehand which trailer fields may come.
type announcer interface{ announce(names []string) }

func (s *HTTP2Sink) announce(names []string) { s.trailers = names }

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
		h["Content-Type"] = nil // or net/http would guess one
	}
	s.committed = true
	s.w.WriteHeader(status)
	if len(s.trailers) > 0 && length < 0 {
		return s.Flush() // or net/http would say how long a short body is, and some clients read no trailer after that
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

// SwitchProtocols implements Sink: over HTTP/2, no connection is one request's alone.
func (s *HTTP2Sink) SwitchProtocols(string, *http1.Fields) (net.Conn, []byte, error) {
	return nil, nil, errNoUpgrade
}

// Committed implements Sink.
func (s *HTTP2Sink) Committed() bool { return s.committed }

// FieldsFromHeader are the fields of a header as net/http has it.
func FieldsFromHeader(h http.Header) *http1.Fields {
	f := new(http1.Fields)
	addHeader(f, h)
	return f
}

// FieldsFromRequest are the fields of a request over HTTP/2, with the announcement of its
// trailer, which net/http has taken out.
func FieldsFromRequest(r *http.Request) *http1.Fields {
	f := FieldsFromHeader(r.Header)
	if names := sortedNames(r.Trailer); len(names) > 0 {
		f.Add("Trailer", strings.Join(names, ", "))
	}
	return f
}

func addHeader(f *http1.Fields, h http.Header) {
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

// sortedNames are the names in h.
func sortedNames(h http.Header) []string { return slices.Sorted(maps.Keys(h)) }
