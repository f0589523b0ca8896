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
	"sync/atomic"
)

// ServeNet answers x by a handler that was written for net/http: for what is not
// asked often, and for what goes on over HTTP/2. Nothing that the handler sees points
// into a connection's buffer. It can neither hijack the connection nor set deadlines;
// an answer that begins before the body has been read ends the connection.
func (x *Exchange) ServeNet(ctx context.Context, h http.Handler) {
	w := &netWriter{x: x, header: http.Header{}}
	r := x.netRequest(ctx, w)
	defer w.end()
	h.ServeHTTP(w, r)
	w.finish()
}

// netRequest is the request of x as net/http knows it.
func (x *Exchange) netRequest(ctx context.Context, w *netWriter) *http.Request {
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
		w.body = &netBody{w: w, request: r}
		r.Body = w.body
		if b.Length() < 0 {
			r.TransferEncoding = []string{"chunked"}
			r.Trailer = announced(r.Header)
		}
	}
	return r
}

// announced takes the names of the trailer fields out of h. As with net/http their
// values come with the end of the body.
func announced(h http.Header) http.Header {
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

// A netWriter is an http.ResponseWriter.
type netWriter struct {
	x      *Exchange
	header http.Header
	body   *netBody // nil if the request has none
	wrote  bool

	mu sync.Mutex // held while an answer is written, also a 100 Continue by who reads the body
}

func (w *netWriter) Header() http.Header { return w.header }

// WriteHeader sends what it is given as net/http does, or keeps it for Write.
func (w *netWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(status)
}

func (w *netWriter) writeHeader(status int) {
	switch {
	case w.wrote:
		return
	case status < 200 && status != 101:
		if status != 100 {
			w.add(w.x.Interim(status))
			_ = w.x.SendInterim() // the final answer will meet the same fate
		}
		return
	}
	w.wrote = true
	x := w.x
	x.uploading = w.body != nil && !w.body.whole.Load()
	w.add(x.Begin(status))
	f := Framing{UntilClose, -1}
	if length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64); err == nil && length >= 0 {
		f = Framing{Length, length}
	}
	if strings.EqualFold(w.header.Get("Connection"), "close") {
		x.Close()
	}
	_ = x.Start(f) // Write meets the error again
}

// add adds what may be added to a head.
func (w *netWriter) add(h *Head) {
	for name, values := range w.header {
		if n := nameOf(name); hopByHop&(1<<n) != 0 && n != Other || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, value := range values {
			h.Add(name, value)
		}
	}
}

func (w *netWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	return w.x.Write(p)
}

// FlushError sends what has been written.
func (w *netWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(http.StatusOK)
	return w.x.Flush()
}

// Flush is FlushError for who has no use for the error.
func (w *netWriter) Flush() { _ = w.FlushError() }

// EnableFullDuplex does nothing: it always is.
func (w *netWriter) EnableFullDuplex() error { return nil }

// finish ends an answer that has begun, with its trailer; one that has not is left to
// the caller.
func (w *netWriter) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wrote || w.x.aborted {
		return
	}
	if err := w.x.endAdding(w.trailer); err != nil {
		w.x.Abort()
	}
}

// trailer adds the trailer fields: those that were announced, and those that say so
// by their names.
func (w *netWriter) trailer(h *Head) {
	announced := w.header["Trailer"]
	for name, values := range w.header {
		plain, late := strings.CutPrefix(name, http.TrailerPrefix)
		if !late && !hasElement(announced, name) || untrailed&(1<<nameOf(plain)) != 0 && nameOf(plain) != Other {
			continue
		}
		for _, value := range values {
			h.Add(plain, value)
		}
	}
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

// end waits for whoever still reads the body, and lets nobody begin to.
func (w *netWriter) end() {
	b := w.body
	if b == nil {
		return
	}
	if !b.whole.Load() {
		w.x.StopBody()
	}
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
	w.x.uploading = false
}

// A netBody is the body of a request for a handler of net/http, which may read it on
// another goroutine than it answers on.
type netBody struct {
	w       *netWriter
	request *http.Request
	whole   atomic.Bool

	mu   sync.Mutex // held while it is read, and guards what follows
	over bool
}

func (b *netBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, http.ErrBodyReadAfterClose
	}
	b.w.mu.Lock()
	err := b.w.x.Continue()
	b.w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := b.w.x.Body().Read(p)
	if errors.Is(err, io.EOF) {
		b.trailer()
		b.whole.Store(true)
	}
	return n, err
}

// trailer fills in the trailer of the request.
func (b *netBody) trailer() {
	for f := range b.w.x.Body().Trailer().All() {
		if b.request.Trailer == nil {
			b.request.Trailer = http.Header{}
		}
		b.request.Trailer.Add(strings.Clone(f.Name), strings.Clone(f.Value))
	}
}

// Stop ends reading, also a read that waits.
func (b *netBody) Stop() { b.w.x.StopBody() }

// Close lets go of the body.
func (b *netBody) Close() error { return nil }
