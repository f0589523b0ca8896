package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// ServeNetHTTP answers x by a handler that was written for net/http: for what is not
// asked often, and for what goes on over HTTP/2. Nothing that the handler sees points
// into a connection's buffer. It can neither hijack the connection nor set deadlines;
// a response that begins before the body has been read ends the connection.
func (x *Exchange) ServeNetHTTP(ctx context.Context, h http.Handler) {
	w := &netHTTPWriter{header: http.Header{}}
	w.duplex.Open(x)
	r := x.toNetHTTP(ctx, w)
	defer w.cancelBodyRead()
	h.ServeHTTP(w, r)
	w.finish()
}

// toNetHTTP is the request of x as net/http knows it.
func (x *Exchange) toNetHTTP(ctx context.Context, w *netHTTPWriter) *http.Request {
	r := (&http.Request{
		Method: strings.Clone(x.Method()), Proto: x.Proto(), ProtoMajor: 1, ProtoMinor: x.Minor, Header: http.Header{},
		Host: strings.Clone(x.Host()), RemoteAddr: x.NetConn().RemoteAddr().String(), RequestURI: strings.Clone(x.Target()), Body: http.NoBody,
	}).WithContext(ctx)
	var err error
	if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil {
		r.URL = &url.URL{Path: x.Path()}
	}
	for f := range x.Fields.All() {
		if f.ID != Host && f.ID != TransferEncoding {
			name := http.CanonicalHeaderKey(strings.Clone(f.Name))
			r.Header[name] = append(r.Header[name], strings.Clone(f.Value))
		}
	}
	if c, ok := x.NetConn().(*tls.Conn); ok {
		state := c.ConnectionState()
		r.TLS = &state
	}
	if b := x.Body(); b != nil {
		r.ContentLength = b.Length()
		w.body = &netHTTPBody{duplex: &w.duplex, request: r}
		r.Body = w.body
		if b.Length() < 0 {
			r.TransferEncoding = []string{"chunked"}
			r.Trailer = trailerNames(r.Header)
		}
	}
	return r
}

// trailerNames takes the names of the trailer fields out of h. As with net/http their
// values come with the end of the body.
func trailerNames(h http.Header) http.Header {
	var trailer http.Header
	for _, line := range h["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.Trim(name, " \t"); name == "" {
				continue
			}
			if trailer == nil {
				trailer = http.Header{}
			}
			trailer[http.CanonicalHeaderKey(name)] = nil
		}
	}
	delete(h, "Trailer")
	return trailer
}

// A netHTTPWriter is an http.ResponseWriter.
type netHTTPWriter struct {
	duplex      Duplex
	header      http.Header
	body        *netHTTPBody // nil if the request has none
	wroteHeader bool         // the final status
}

func (w *netHTTPWriter) Header() http.Header { return w.header }

// WriteHeader sends what it is given as net/http does, or keeps it for Write.
func (w *netHTTPWriter) WriteHeader(status int) {
	switch {
	case w.wroteHeader, status == http.StatusContinue: // the client is sent that when its body is read
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.duplex.Informational(status, w.fields())
		return
	}
	w.wroteHeader = true
	length := int64(-1)
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		length = n
	}
	if strings.EqualFold(w.header.Get("Connection"), "close") {
		w.duplex.x.SetConnectionClose()
	}
	_ = w.duplex.Begin(status, w.fields(), length) // Write meets the error again
}

// fields are what may be added to a head.
func (w *netHTTPWriter) fields() *Fields {
	f := new(Fields)
	for name, values := range w.header {
		if n := nameOf(name); hopByHop&(1<<n) != 0 && n != Other || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, value := range values {
			f.Add(name, value)
		}
	}
	return f
}

func (w *netHTTPWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.duplex.Write(p)
}

// FlushError sends what has been written.
func (w *netHTTPWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.duplex.Flush()
}

// Flush is FlushError for who has no use for the error.
func (w *netHTTPWriter) Flush() { _ = w.FlushError() }

// EnableFullDuplex does nothing: it always is.
func (w *netHTTPWriter) EnableFullDuplex() error { return nil }

// finish ends a response that has begun, with its trailer; one that has not is left
// to the caller.
func (w *netHTTPWriter) finish() {
	x := w.duplex.x
	if !w.wroteHeader || x.aborted {
		return
	}
	if err := w.duplex.End(w.trailer()); err != nil {
		x.Abort()
	}
}

// trailer are the trailer fields: those that were announced, and those that say so by
// their names.
func (w *netHTTPWriter) trailer() *Fields {
	f := new(Fields)
	announced := w.header["Trailer"]
	for name, values := range w.header {
		plain, late := strings.CutPrefix(name, http.TrailerPrefix)
		if !late && !hasElement(announced, name) {
			continue
		}
		for _, value := range values {
			f.Add(plain, value)
		}
	}
	return f
}

func hasElement(lines []string, name string) bool {
	for _, line := range lines {
		for line != "" {
			var element string
			if element, line = token(line); strings.EqualFold(element, name) {
				return true
			}
		}
	}
	return false
}

// cancelBodyRead waits for whoever still reads the body, and lets nobody begin to.
func (w *netHTTPWriter) cancelBodyRead() {
	if w.body == nil {
		return
	}
	w.duplex.Stop()
	w.body.mu.Lock()
	w.body.closed = true
	w.body.mu.Unlock()
	w.duplex.x.uploading = false
}

// A netHTTPBody is the body of a request for a handler of net/http, which may read it on
// another goroutine than it answers on, and longer than it may.
type netHTTPBody struct {
	duplex  *Duplex
	request *http.Request

	mu     sync.Mutex // held while it is read, and guards what follows
	closed bool
}

func (b *netHTTPBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.duplex.Read(p)
	if errors.Is(err, io.EOF) {
		b.trailer()
	}
	return n, err
}

// trailer fills in the trailer of the request.
func (b *netHTTPBody) trailer() {
	for f := range b.duplex.Trailer().All() {
		if b.request.Trailer == nil {
			b.request.Trailer = http.Header{}
		}
		b.request.Trailer.Add(strings.Clone(f.Name), strings.Clone(f.Value))
	}
}

// Close lets go of the body.
func (b *netHTTPBody) Close() error { return nil }

// Stop ends reading, also a read that waits.
func (b *netHTTPBody) Stop() { b.duplex.Stop() }
