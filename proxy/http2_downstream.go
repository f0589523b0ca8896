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

// errBody reports that the body of a request could not be read to its end.
var errBody = errors.New("body cannot be read")

// An httpDownstream is the downstream of net/http's server, by which HTTP/2 comes in.
type httpDownstream struct {
	w    *responseWriter
	r    *http.Request
	x    *exchange
	body *body  // nil if the request has none
	kept buffer // what whole has read of it
	read []byte // in kept; nil if nobody asked
}

// ServeHTTP takes one request in and sees it out.
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
	if x.outcome.result.HeaderSent && x.outcome.result.Kind != upstream.OK {
		panic(http.ErrAbortHandler) // how net/http wants a connection to be cut
	}
}

// local is the address that the client of r has connected to.
func local(r *http.Request) string {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		return at.String()
	}
	return "localhost" // by a socket of this machine
}

// answer sends a response of ours at once, whether or not the request's body
// has come. What has not is read afterwards if that saves the connection.
func (d *httpDownstream) answer(a respond.Response) {
	h := d.w.Header()
	a.CopyTo(h)
	h.Set("X-Request-Id", d.x.id)
	if d.r.Method == http.MethodConnect { // what follows may be meant for another server
		h.Set("Connection", "close")
	}
	d.w.WriteHeader(a.Status)
	if d.r.Method != http.MethodHead {
		_, _ = d.w.Write(a.Body) // the client may have left
	}
}

// readAll implements carrier. The trailer has come with the end of the body, so it
// is forwarded as well.
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
	t.Fields, t.ForceQuery = upstream.FieldsFromRequest(d.r), d.r.URL.ForceQuery
	if d.body == nil {
		t.Length = 0
	} else {
		d.body.limit(d.x.route.MaxBody)
		t.Body, t.BufferedBody = d.body, d.read
	}
	result := p.Forward(d.r.Context(), t, upstream.NewHTTP2Sink(d.w))
	if result.Kind == upstream.ClientGone && d.body.late() {
		result.Kind = upstream.BodyTimeout // net/http takes one for the other
	}
	return result
}

// beforeEnd implements downstream.
func (d *httpDownstream) beforeEnd(release func(flush func())) { d.w.release = release }

// newBody is the body of r, nil if it has none.
func newBody(w http.ResponseWriter, r *http.Request, wait time.Duration) *body {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	return &body{
		Reader:  r.Body,
		clock:   http.NewResponseController(w),
		wait:    wait,
		stream:  r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"),
		trailer: func() *http1.Fields { return upstream.FieldsFromHeader(r.Trailer) },
	}
}

// A responseWriter notes what the client was sent.
type responseWriter struct {
	http.ResponseWriter
	x       *exchange
	body    *body
	stall   *stall             // nil if the connection sees to that
	held    bool               // something was written that net/http may not have sent
	release func(flush func()) // what is called before the response ends; nil for nothing
	left    int64              // bytes of the body that are still to be written, where that is announced
}

// Unwrap lets net/http find what the writer below can do.
func (c *responseWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *responseWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		c.x.answer.status = status
		c.body.answered()
		c.expect(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

// expect learns how long the body will be if something has to happen before its end.
// A response without a body ends with its header.
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
		c.release(func() { _ = c.FlushError() }) // whether the client is still there is learnt later
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

// FlushError sends what has been written on its way.
func (c *responseWriter) FlushError() error {
	c.held = false
	c.stall.begin()
	defer c.stall.end()
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// end bounds the wait for what net/http still holds of a response over HTTP/2: after
// the handler it would wait for the client's window for ever. It is not flushed, for
// a response that ends with its last bytes is one frame less, and some clients of
// gRPC know no other. The deadline ends with its stream; on one that is gone already
// nothing would end it, see stall.
func (c *responseWriter) end(ctx context.Context) {
	if c.stall != nil && c.stall.after > 0 && c.held && ctx.Err() == nil {
		_ = c.stall.cut(time.Now().Add(c.stall.after)) // fails when the stream is gone
	}
}
