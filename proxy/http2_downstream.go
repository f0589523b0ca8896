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
	"time"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// errBody reports that the body of a request could not be read completely.
var errBody = errors.New("body cannot be read")

// An httpDownstream is the downstream of net/http's server, which serves HTTP/2.
type httpDownstream struct {
	w    *responseWriter
	r    *http.Request
	x    *exchange
	body *body  // nil if the request has none
	kept buffer // holds the body read by readAll
	read []byte // the body in kept; nil if readAll was not called
}

// ServeHTTP serves one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := p.exchanges.Get().(*exchange)
	x.request.Method, x.request.HostField, x.request.Proto = r.Method, r.Host, r.Proto
	x.request.RequestTarget = r.RequestURI
	if x.request.HostField == "" {
		x.request.Local = local(r)
	}
	x.in.scheme = "http"
	if r.TLS != nil {
		x.in.scheme = "https"
	}
	x.in.header, x.in.length = r.Header, r.ContentLength
	x.in.peer, _ = netip.ParseAddrPort(r.RemoteAddr)
	x.in.fault = malformed(r)
	x.in.unasked = unasked(r.Method, r.Header)
	for name := range r.Header {
		if !key.IsPlainHeader(name) {
			x.in.odd = append(x.in.odd, name)
		}
	}

	d := &httpDownstream{r: r, x: x, body: newBody(w, r, p.timeouts.Body)}
	d.kept.all = p.buffers
	defer d.kept.free()
	x.in.body = d
	d.w = &responseWriter{ResponseWriter: w, x: x, body: d.body}
	if r.ProtoMajor == 2 {
		d.w.stall = &stall{after: p.timeouts.Write, cut: http.NewResponseController(w).SetWriteDeadline}
	}
	defer p.finish(r.Context(), x)
	p.serve(r.Context(), x, d)
	d.w.beforeEnd()
	x.answer.streamReset = r.ProtoMajor == 2 && r.Context().Err() != nil
	d.w.end(r.Context())
	d.body.end()
	if x.outcome.result.Wrote && x.outcome.result.Kind != upstream.OK {
		panic(http.ErrAbortHandler) // makes net/http abort the stream or connection
	}
}

// local returns the local address of the client's connection.
func local(r *http.Request) string {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return at.String()
	}
	return "localhost" // a Unix domain socket
}

// answer sends a response by Weir itself at once, whether or not the request's body has been
// received. net/http reads the rest of the body if that allows the connection to be reused.
func (d *httpDownstream) answer(a respond.Response) {
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
func (d *httpDownstream) readAll(most int64) ([]byte, error) {
	if d.body == nil {
		return nil, nil
	}
	d.body.limit(most)
	d.kept.client = d.x.client.network
	if announced := d.x.in.length; announced >= 0 {
		most = min(most, announced)
	}
	read, err := d.kept.read(d.body, most)
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		return nil, fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, most)
	}
	if errors.Is(err, errBuffersFull) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	d.read = read
	return read, nil
}

func (d *httpDownstream) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	t.Fields, t.ForceQuery = upstream.RequestFieldsOf(d.r), d.r.URL.ForceQuery
	if d.body == nil {
		t.Length = 0
	} else {
		d.body.limit(d.x.route.MaxBody)
		t.Body, t.Content = d.body, d.read
	}
	result := p.Forward(d.r.Context(), t, upstream.NewNetSink(d.w))
	if result.Kind == upstream.ClientGone && d.body.late() {
		result.Kind = upstream.BodyTimeout // net/http does not distinguish the two
	}
	return result
}

// beforeEnd implements downstream.
func (d *httpDownstream) beforeEnd(release func(flush func())) { d.w.release = release }

// newBody returns the body of r, or nil if it has none.
func newBody(w http.ResponseWriter, r *http.Request, wait time.Duration) *body {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	return &body{
		Reader:  r.Body,
		clock:   http.NewResponseController(w),
		wait:    wait,
		stream:  r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"),
		trailer: func() *http1.Fields { return upstream.FieldsOf(r.Trailer) },
	}
}

// A responseWriter records the response that is sent.
type responseWriter struct {
	http.ResponseWriter
	x       *exchange
	body    *body
	stall   *stall             // nil if the connection sees to that
	held    bool               // something was written that net/http may not have sent
	release func(flush func()) // what is called before the response ends; nil for nothing
	left    int64              // bytes of the body that are still to be written, where that is announced
}

// Unwrap returns the underlying writer for http.ResponseController.
func (c *responseWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *responseWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		c.x.answer.status = status
		c.body.answered()
		c.expect(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

// expect reads the announced length of the body if release must be called before its end. A
// response without a body ends with its header.
func (c *responseWriter) expect(status int) {
	if c.release == nil {
		return
	}
	length, err := strconv.ParseInt(c.Header().Get("Content-Length"), 10, 64)
	switch {
	case status == http.StatusSwitchingProtocols:
	case c.x.request.Method == http.MethodHead, status == http.StatusNoContent, status == http.StatusNotModified, err == nil && length == 0:
		c.release(func() {})
		c.release = nil
	case err == nil:
		c.left = length
	}
}

// beforeEnd is called before what ends the response is written.
func (c *responseWriter) beforeEnd() {
	if c.release != nil {
		c.release(func() { _ = c.FlushError() }) // a disconnected client is noticed later
		c.release = nil
	}
}

func (c *responseWriter) Write(b []byte) (int, error) {
	if c.x.answer.status == 0 {
		c.x.answer.status = http.StatusOK
	}
	if c.left > 0 {
		if c.left -= int64(len(b)); c.left <= 0 {
			c.beforeEnd()
		}
	}
	c.held = true
	c.stall.begin()
	n, err := c.ResponseWriter.Write(b)
	c.stall.end()
	c.x.answer.bytes += int64(n)
	return n, err
}

// FlushError sends buffered data to the client.
func (c *responseWriter) FlushError() error {
	c.held = false
	c.stall.begin()
	defer c.stall.end()
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// end sets a deadline for data of an HTTP/2 response that net/http still buffers. Without it,
// net/http would wait without limit for the client's flow control window after the handler returns.
// The data is not flushed, because a response that ends together with its last bytes needs one
// frame less, and some gRPC clients accept nothing else. The deadline is removed with the stream.
// It must not be set on a stream that is gone, where nothing would remove it; see stall.
func (c *responseWriter) end(ctx context.Context) {
	if c.stall != nil && c.stall.after > 0 && c.held && ctx.Err() == nil {
		_ = c.stall.cut(time.Now().Add(c.stall.after)) // fails if the stream is gone
	}
}
