package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// errBody reports that the body of a request could not be read completely.
var errBody = errors.New("body cannot be read")

// An http1Downstream is the downstream of HTTP/1.1. Its strings share the buffer of the connection:
// those that outlive the handler must be cloned (exchange.detach).
type http1Downstream struct {
	reusable
	h      *http1.Exchange
	reqCtx http1.Context
	duplex http1.Duplex // relays between h and the upstream, once the request is forwarded
}

// A reusable is what a downstream keeps for the next request on its connection or stream.
type reusable struct {
	x       *exchange   // reused for the next request, unless it outlives this one
	buffer  body.Buffer // holds the body read by readAll
	content []byte      // the body in buffer; nil if readAll was not called
}

// begin prepares r for a request to p, whose body is read by from.
func (r *reusable) begin(p *Proxy, from bodyReader) {
	if r.x == nil {
		r.x = p.exchanges.Get().(*exchange)
		r.x.reused = true
	}
	r.buffer.Budget = p.buffers
	r.x.in.body = from
}

// end releases the body, and returns what is kept for the next request.
func (r *reusable) end() reusable {
	r.buffer.Release()
	return reusable{x: r.x}
}

// giveUp makes r use another exchange for its next request, because x outlives this one.
func (r *reusable) giveUp() { r.x = nil }

// ServeHTTP1 serves one HTTP/1.1 request.
func (p *Proxy) ServeHTTP1(h *http1.Exchange) {
	if h.Target() == "*" { // OPTIONS *, about the server itself
		h.Begin(http.StatusOK)
		_ = h.Send(nil) // the client may have disconnected
		return
	}
	d := p.http1Downstream(h)
	defer d.release()
	x := d.x
	d.readRequest()
	defer p.finish(&d.reqCtx, x)
	p.serve(&d.reqCtx, x, d)
	if release := h.BeforeEnd; release != nil { // the response was truncated
		h.BeforeEnd = nil
		release(func() {})
	}
	x.response.bytes = h.BodyBytesSent()
	if x.outcome.result.HeaderSent && x.outcome.result.Kind != upstream.OK {
		h.Abort()
	}
}

// http1Downstream returns a downstream for h: that of its last request, if possible.
func (p *Proxy) http1Downstream(h *http1.Exchange) *http1Downstream {
	d, ok := h.State.(*http1Downstream)
	if !ok {
		d = new(http1Downstream)
		h.State = d
	}
	d.h, d.reqCtx.Exchange = h, h
	d.begin(p, d)
	return d
}

// release releases the body of d, and prepares d for the next request unless its context may still be
// in use.
func (d *http1Downstream) release() {
	kept := d.end()
	if d.reqCtx.Observed() {
		d.h.State = nil
		return
	}
	*d = http1Downstream{reusable: kept}
}

// readRequest fills the exchange from the request.
func (d *http1Downstream) readRequest() {
	h, x := d.h, d.x
	x.request.Method, x.request.HostField, x.request.Proto, x.request.RequestTarget = h.Method(), h.Host(), h.Proto(), h.Target()
	if x.request.HostField == "" {
		x.request.Local = localAddress(h.NetConn().LocalAddr())
	}
	x.in.scheme = "http"
	if h.Secure() {
		x.in.scheme = "https"
	}
	x.in.peer = h.Peer()
	x.in.header = &h.Fields
	if b := h.Body(); b != nil {
		x.in.length = b.Length()
	}
	x.readFieldNames(&h.Fields)
}

// readFieldNames records the names of fields that some stages treat in a special way.
func (x *exchange) readFieldNames(fields *http1.Fields) {
	asks := x.request.Method == http.MethodOptions
	if !asks && !fields.HasUnusualNames() {
		return
	}
	for f := range fields.All() {
		plain := key.IsPlainHeader(f.Name)
		if plain && (!asks || f.ID == http1.Host) {
			continue
		}
		name := http.CanonicalHeaderKey(f.Name)
		if !plain {
			x.in.notPlain = append(x.in.notPlain, name)
		}
		if asks && !isPreflightField(name) {
			x.in.notPreflight = append(x.in.notPreflight, name)
		}
	}
}

// localAddress returns the local address of the client's connection as text.
func localAddress(addr net.Addr) string {
	if at, ok := addr.(*net.TCPAddr); ok {
		return at.String()
	}
	return "localhost" // a Unix domain socket
}

// respond sends a response by Weir itself, whether or not the request's body has been received. The
// rest of the body is read afterwards if that allows the connection to be reused.
func (d *http1Downstream) respond(a respond.Response) {
	h, x := d.h, d.x
	x.response.status = a.Status
	x.forGRPC(&a)
	head := h.Begin(a.Status)
	block := x.rateLimitFields.block
	if block != nil {
		head.AddBlock(*block)
	}
	for i := range a.Fields {
		if f := &a.Fields[i]; block == nil && f.Name != "Content-Length" {
			head.Add(f.Name, f.Value)
		}
	}
	head.AddKnownString(http1.XRequestID, x.id)
	_ = h.Send(a.Body) // the client may have disconnected
}

// readAll implements bodyReader. The trailer is available at the end of the body and is forwarded
// as well.
func (d *http1Downstream) readAll(maxBytes int64) ([]byte, error) {
	b := d.h.Body()
	if b == nil {
		return nil, nil
	}
	b.Limit(maxBytes)
	beside := int64(0) // a body of known length is read straight into the buffer
	if d.x.in.length < 0 {
		beside = http1.BodyBufferSize
	}
	read, err := d.x.readBody(&d.buffer, b, maxBytes, beside)
	if err != nil {
		return nil, err
	}
	if d.content = read; read == nil {
		d.content = []byte{}
	}
	return read, nil
}

func (d *http1Downstream) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	h := d.h
	t.Fields = &h.Fields
	_, t.ForceQuery = h.RawQuery()
	d.duplex.Open(h)
	if b := h.Body(); b != nil {
		b.Limit(d.x.route.MaxBody)
		t.Body = &d.duplex
		d.setBody(t)
	}
	return p.Forward(&d.reqCtx, t, &d.duplex)
}

// beforeEnd implements downstream.
func (d *http1Downstream) beforeEnd(release func(flush func())) { d.h.BeforeEnd = release }

// detach clones the strings of x that are needed after its downstream has ended.
func (x *exchange) detach() {
	d, borrowed := x.in.body.(interface{ giveUp() })
	if !borrowed {
		return
	}
	d.giveUp()
	x.reused = false
	texts := []*string{&x.id, &x.in.userAgent, &x.in.referer}
	for i := range x.extracted.keys { // by which prices are found
		texts = append(texts, &x.extracted.keys[i].Text, &x.extracted.keys[i].Number.E164)
	}
	for _, s := range texts {
		*s = strings.Clone(*s)
	}
	x.request.Keep()
	x.in.header, x.in.body = noFields{}, nil
}

// RefuseHTTP1 responds to a request that could not be parsed.
func (p *Proxy) RefuseHTTP1(h *http1.Exchange, why error) {
	d := p.http1Downstream(h)
	defer d.release()
	x := d.x
	x.in.header, x.in.peer, x.in.parseErr = noFields{}, h.Peer(), why
	defer p.finish(&d.reqCtx, x)
	p.recorder.start(x)
	p.enter(x)
	g := x.generation
	g.clientIP.resolve(x)
	p.recorder.setID(x)
	d.respond(g.refuse(x, why))
	x.response.bytes = h.BodyBytesSent()
}

var _ context.Context = &http1.Context{}
