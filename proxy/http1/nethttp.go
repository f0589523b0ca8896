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

// ServeNetHTTP serves e with a handler for net/http. It is meant for requests that are
// rare, and for code that also serves HTTP/2. All strings that the handler gets are
// copies. The handler cannot hijack the connection or set deadlines. If it starts the
// response before it has read the request body, the connection is closed after the
// response.
func (e *Exchange) ServeNetHTTP(ctx context.Context, h http.Handler) {
	w := &netHTTPWriter{header: http.Header{}}
	w.duplex.Open(e)
	r := e.toNetHTTP(ctx, w)
	defer w.cancelBodyRead()
	h.ServeHTTP(w, r)
	w.finish()
}

// toNetHTTP returns the request of e as a net/http request.
func (e *Exchange) toNetHTTP(ctx context.Context, w *netHTTPWriter) *http.Request {
	r := (&http.Request{
		Method: strings.Clone(e.Method()), Proto: e.Proto(), ProtoMajor: 1, ProtoMinor: e.Minor, Header: http.Header{},
		Host: strings.Clone(e.Host()), RemoteAddr: e.NetConn().RemoteAddr().String(), RequestURI: strings.Clone(e.Target()), Body: http.NoBody,
	}).WithContext(ctx)
	var err error
	if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil {
		r.URL = &url.URL{Path: e.Path()}
	}
	for f := range e.Fields.All() {
		if f.ID != Host && f.ID != TransferEncoding {
			name := http.CanonicalHeaderKey(strings.Clone(f.Name))
			r.Header[name] = append(r.Header[name], strings.Clone(f.Value))
		}
	}
	if c, ok := e.NetConn().(*tls.Conn); ok {
		state := c.ConnectionState()
		r.TLS = &state
	}
	if b := e.Body(); b != nil {
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

// trailerNames removes Trailer from h and returns a header with the names that it
// announces. As with net/http, the values are set when the body has been read.
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
	body        *netHTTPBody // nil if the request has no body
	wroteHeader bool         // the final status was written
}

func (w *netHTTPWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. A 1xx response is sent immediately.
func (w *netHTTPWriter) WriteHeader(status int) {
	switch {
	case w.wroteHeader, status == http.StatusContinue: // Duplex.Read sends 100 Continue
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
	_ = w.duplex.Begin(status, w.fields(), length) // Write returns the error again
}

// fields returns the header without hop-by-hop fields.
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

// FlushError sends what was written.
func (w *netHTTPWriter) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.duplex.Flush()
}

// Flush implements http.Flusher.
func (w *netHTTPWriter) Flush() { _ = w.FlushError() }

// EnableFullDuplex does nothing: reading and writing at the same time is always
// allowed.
func (w *netHTTPWriter) EnableFullDuplex() error { return nil }

// finish completes a response that was started. If none was, the caller has to respond.
func (w *netHTTPWriter) finish() {
	x := w.duplex.x
	if !w.wroteHeader || x.aborted {
		return
	}
	if err := w.duplex.End(w.trailer()); err != nil {
		x.Abort()
	}
}

// trailer returns the trailer fields: those that were announced in Trailer, and those
// with the prefix http.TrailerPrefix.
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

// cancelBodyRead stops reading of the request body, waits for a pending read, and makes
// later reads fail.
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

// A netHTTPBody is the request body for a net/http handler. The handler may read it on
// another goroutine than the one that writes the response, and may try to read it after
// the handler has returned.
type netHTTPBody struct {
	duplex  *Duplex
	request *http.Request

	mu     sync.Mutex // held during a read; guards the fields below
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

// trailer copies the trailer fields to the request.
func (b *netHTTPBody) trailer() {
	for f := range b.duplex.Trailer().All() {
		if b.request.Trailer == nil {
			b.request.Trailer = http.Header{}
		}
		b.request.Trailer.Add(strings.Clone(f.Name), strings.Clone(f.Value))
	}
}

// Close does nothing. What is left of the body is handled after the handler has
// returned.
func (b *netHTTPBody) Close() error { return nil }

// Stop makes a pending read return.
func (b *netHTTPBody) Stop() { b.duplex.Stop() }
