package http1

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// ServeNetHTTP serves e with a handler for net/http. It is meant for requests that are
// rare, and for code that also serves HTTP/2. All strings that the handler gets are
// copies. The handler cannot hijack the connection, set deadlines, or use trailers and
// 1xx responses. If it starts the response before it has read the request body, the
// connection is closed after the response. If it starts none, the client gets an empty one
// with status 200, as with net/http.
func (e *Exchange) ServeNetHTTP(h http.Handler) {
	w := &netHTTPWriter{header: http.Header{}}
	w.duplex.Open(e)
	r := e.toNetHTTP(w)
	defer w.cancelBodyRead()
	h.ServeHTTP(w, r)
	w.finish()
}

// toNetHTTP returns the request of e as a net/http request.
func (e *Exchange) toNetHTTP(w *netHTTPWriter) *http.Request {
	r := (&http.Request{
		Method: strings.Clone(e.Method()), Proto: e.Proto(), ProtoMajor: 1, ProtoMinor: e.Minor, Header: http.Header{},
		Host: strings.Clone(e.Host()), RemoteAddr: e.NetConn().RemoteAddr().String(),
		RequestURI: strings.Clone(e.Target()), Body: http.NoBody,
	}).WithContext(&Context{Exchange: e})
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
		w.body = &netHTTPBody{duplex: &w.duplex}
		r.Body = w.body
	}
	return r
}

// A netHTTPWriter is an http.ResponseWriter.
type netHTTPWriter struct {
	duplex      Duplex
	header      http.Header
	body        *netHTTPBody // nil if the request has no body
	wroteHeader bool         // the final status was written
}

func (w *netHTTPWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *netHTTPWriter) WriteHeader(status int) {
	if w.wroteHeader {
		return
	}
	w.wroteHeader = true
	length := int64(-1)
	if n, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		length = n
	}
	if strings.EqualFold(w.header.Get("Connection"), "close") {
		w.duplex.x.closeConn = true
	}
	_ = w.duplex.Begin(status, w.fields(), length) // Write returns the error again
}

// fields returns the header without hop-by-hop fields.
func (w *netHTTPWriter) fields() *Fields {
	f := new(Fields)
	for name, values := range w.header {
		if n := LookupName(name); hopByHop&(1<<n) != 0 && n != Other {
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

// Flush implements http.Flusher, for middleware that knows nothing else and would not flush at all.
func (w *netHTTPWriter) Flush() { _ = w.FlushError() } // Write returns the error again

// finish completes the response.
func (w *netHTTPWriter) finish() {
	x := w.duplex.x
	switch {
	case x.aborted:
	case !w.wroteHeader:
		x.Begin(http.StatusOK)
		_ = x.Send(nil) // fails if the client is gone
	case w.duplex.End(nil) != nil:
		x.Abort()
	}
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
	duplex *Duplex

	mu     sync.Mutex // held during a read; guards the fields below
	closed bool
}

func (b *netHTTPBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.duplex.Read(p)
}

// Close does nothing. What is left of the body is handled after the handler has
// returned.
func (b *netHTTPBody) Close() error { return nil }
