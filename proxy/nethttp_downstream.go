package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// errBody reports that the body of a request could not be read completely.
var errBody = errors.New("body cannot be read")

// An httpDownstream is the downstream of net/http's server, which serves HTTP/2.
type httpDownstream struct {
	w       *responseWriter
	r       *http.Request
	x       *exchange
	body    *body.Reader // nil if the request has none
	buffer  body.Buffer  // holds the body read by readAll
	content []byte       // the body in kept; nil if readAll was not called
}

// ServeHTTP serves one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := p.exchanges.Get().(*exchange)
	x.request.Method, x.request.HostField, x.request.Proto = r.Method, r.Host, r.Proto
	x.request.RequestTarget = r.RequestURI
	if x.request.HostField == "" {
		x.request.Local = localAddressOf(r)
	}
	x.in.scheme = "http"
	if r.TLS != nil {
		x.in.scheme = "https"
	}
	x.in.header, x.in.length = r.Header, r.ContentLength
	x.in.peer, _ = netip.ParseAddrPort(r.RemoteAddr)
	x.in.parseErr = checkHTTP2(r)
	x.in.notPreflight = notPreflightFields(r.Method, r.Header)
	for name := range r.Header {
		if !key.IsPlainHeader(name) {
			x.in.notPlain = append(x.in.notPlain, name)
		}
	}

	d := &httpDownstream{r: r, x: x, body: newBody(w, r, p.timeouts.Body)}
	d.buffer.Budget = p.buffers
	defer d.buffer.Release()
	x.in.body = d
	d.w = &responseWriter{ResponseWriter: w, x: x, body: d.body}
	if r.ProtoMajor == 2 {
		d.w.timeout = &writeTimeout{after: p.timeouts.Write, setDeadline: http.NewResponseController(w).SetWriteDeadline}
	}
	defer p.finish(r.Context(), x)
	p.serve(r.Context(), x, d)
	d.w.beforeEnd()
	x.response.streamReset = r.ProtoMajor == 2 && r.Context().Err() != nil
	d.w.setFinalDeadline(r.Context())
	d.body.End()
	if x.outcome.result.HeaderSent && x.outcome.result.Kind != upstream.OK {
		panic(http.ErrAbortHandler) // makes net/http abort the stream or connection
	}
}

// localAddressOf returns the local address of the client's connection.
func localAddressOf(r *http.Request) string {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return at.String()
	}
	return "localhost" // a Unix domain socket
}

// respond sends a response by Weir itself at once, whether or not the request's body has been
// received. net/http reads the rest of the body if that allows the connection to be reused.
func (d *httpDownstream) respond(a respond.Response) {
	h := d.w.Header()
	a.CopyTo(h)
	h.Set("X-Request-Id", d.x.id)
	if d.r.Method == http.MethodConnect { // the following bytes may be meant for another server
		h.Set("Connection", "close")
	}
	d.w.WriteHeader(a.Status)
	if d.r.Method != http.MethodHead {
		_, _ = d.w.Write(a.Body) // the client may have disconnected
	}
}

// readAll implements bodyReader. The trailer is available at the end of the body and is forwarded
// as well.
func (d *httpDownstream) readAll(maxBytes int64) ([]byte, error) {
	if d.body == nil {
		return nil, nil
	}
	d.body.Limit(maxBytes)
	d.buffer.Client = d.x.client.network
	read, err := d.buffer.ReadAll(d.body, d.x.in.length, maxBytes, body.HTTP2Beside(d.x.in.length))
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return nil, fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, maxBytes)
	}
	if errors.Is(err, body.ErrFull) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	d.content = read
	return read, nil
}

func (d *httpDownstream) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	t.Fields, t.ForceQuery = upstream.FieldsFromRequest(d.r), d.r.URL.ForceQuery
	if d.body == nil {
		t.Length = 0
	} else {
		d.body.Limit(d.x.route.MaxBody)
		t.Body, t.BufferedBody = d.body, d.content
	}
	result := p.Forward(d.r.Context(), t, upstream.NewHTTP2Sink(d.w))
	if result.Kind == upstream.ClientGone && d.body.TimedOut() {
		result.Kind = upstream.BodyTimeout // net/http does not distinguish the two
	}
	return result
}

// beforeEnd implements downstream.
func (d *httpDownstream) beforeEnd(release func(flush func())) { d.w.release = release }

// newBody returns the body of r, or nil if it has none.
func newBody(w http.ResponseWriter, r *http.Request, wait time.Duration) *body.Reader {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	return &body.Reader{
		From:      r.Body,
		Deadlines: http.NewResponseController(w),
		Timeout:   wait,
		IsStream:  r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"),
		Fields:    func() *http1.Fields { return upstream.FieldsFromHeader(r.Trailer) },
	}
}

// A responseWriter records the response that is sent.
type responseWriter struct {
	http.ResponseWriter
	x         *exchange
	body      *body.Reader
	timeout   *writeTimeout      // nil if the connection sees to that
	unflushed bool               // something was written that net/http may not have sent
	release   func(flush func()) // what is called before the response ends; nil for nothing
	remaining int64              // bytes of the body that are still to be written, where that is announced
}

// Unwrap returns the underlying writer for http.ResponseController.
func (r *responseWriter) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *responseWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		r.x.response.status = status
		r.body.MarkResponseStarted()
		r.readLength(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

// readLength reads the announced length of the body if release must be called before its end. A
// response without a body ends with its header.
func (r *responseWriter) readLength(status int) {
	if r.release == nil {
		return
	}
	length, err := strconv.ParseInt(r.Header().Get("Content-Length"), 10, 64)
	switch {
	case status == http.StatusSwitchingProtocols:
	case r.x.request.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified, err == nil && length == 0:
		r.release(func() {})
		r.release = nil
	case err == nil:
		r.remaining = length
	}
}

// beforeEnd is called before what ends the response is written.
func (r *responseWriter) beforeEnd() {
	if r.release != nil {
		r.release(func() { _ = r.FlushError() }) // a disconnected client is noticed later
		r.release = nil
	}
}

func (r *responseWriter) Write(b []byte) (int, error) {
	if r.x.response.status == 0 {
		r.x.response.status = http.StatusOK
	}
	if r.remaining > 0 {
		if r.remaining -= int64(len(b)); r.remaining <= 0 {
			r.beforeEnd()
		}
	}
	r.unflushed = true
	r.timeout.begin()
	n, err := r.ResponseWriter.Write(b)
	r.timeout.end()
	r.x.response.bytes += int64(n)
	return n, err
}

// FlushError sends buffered data to the client.
func (r *responseWriter) FlushError() error {
	r.unflushed = false
	r.timeout.begin()
	defer r.timeout.end()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// setFinalDeadline sets a deadline for data of an HTTP/2 response that net/http still buffers. Without it,
// net/http would wait without limit for the client's flow control window after the handler returns.
// The data is not flushed, because a response that ends together with its last bytes needs one
// frame less, and some gRPC clients accept nothing else. The deadline is removed with the stream.
// It must not be set on a stream that is gone, where nothing would remove it; see stall.
func (r *responseWriter) setFinalDeadline(ctx context.Context) {
	if r.timeout != nil && r.timeout.after > 0 && r.unflushed && ctx.Err() == nil {
		_ = r.timeout.setDeadline(time.Now().Add(r.timeout.after)) // fails if the stream is gone
	}
}

// A writeTimeout resets an HTTP/2 stream whose client has not read for too long, while other streams of
// the connection continue. It has its own timer: net/http would keep a finished stream in memory
// until the write deadline set for it, so that a client that resets its requests could fill the
// memory. The zero value never resets.
type writeTimeout struct {
	after       time.Duration // 0 disables it
	setDeadline func(time.Time) error

	mu    sync.Mutex // guards what follows
	armed bool
	timer *time.Timer
}

// begin must be called before each write.
func (w *writeTimeout) begin() {
	if w == nil || w.after == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(w.after, w.fire)
		return
	}
	w.timer.Reset(w.after)
}

// end must be called after each write. It stops the timer.
func (w *writeTimeout) end() {
	if w == nil || w.after == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	w.timer.Stop()
}

func (w *writeTimeout) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		_ = w.setDeadline(time.Unix(1, 0)) // a deadline in the past resets the stream at once and starts no timer
	}
}
