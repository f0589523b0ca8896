package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/body"
	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
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
	x      *exchange   // reused for the next request, unless it outlives this one
	buffer body.Buffer // holds the body read by readAll
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
	return d.x.readBody(&d.buffer, b, maxBytes, beside)
}

func (d *http1Downstream) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	h := d.h
	t.Fields = &h.Fields
	_, t.ForceQuery = h.RawQuery()
	d.duplex.Open(h)
	if b := h.Body(); b != nil {
		b.Limit(d.x.route.MaxBody)
		t.Body = &d.duplex
		d.x.setBody(t)
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

// An http2Downstream is the downstream of HTTP/2. It is the Sink of its response. Its strings share
// the memory of the stream: those that outlive the handler must be cloned (exchange.detach).
type http2Downstream struct {
	*http2.Stream
	reusable
	body    *body.Reader // nil if the request has none
	decided bool         // BeginHTTP2 has decided about the request

	webSocketKey string // of an extended CONNECT
}

// BodyBudget returns what bounds the memory of the bodies that are buffered: listen.max_buffered.
func (p *Proxy) BodyBudget() http2.Budget { return p.buffers }

// Tunnels returns the tunnels of all WebSockets.
func (p *Proxy) Tunnels() *http1.Tunnels { return &p.shared.groups.Tunnels }

// BeginHTTP2 runs the stages that do not wait. A request that is refused by them, or for which the
// route has a fixed response, then needs no goroutine.
func (p *Proxy) BeginHTTP2(s *http2.Stream) (more bool) {
	if s.Path == "*" && s.Err == nil { // OPTIONS *, about the server itself
		s.Start(http.StatusOK)
		_ = s.Send(nil) // the client may have disconnected
		return false
	}
	d := p.http2Downstream(s)
	x := d.x
	d.readRequest()
	err := p.accept(x)
	if err == nil && !p.decidesAtOnce(x.route) {
		return true
	}
	if err == nil {
		err = p.decide(s.Context(), x)
	}
	if err == nil && x.route.Upstream != nil {
		d.decided = true
		return true
	}
	p.respondHTTP2(d, err)
	return false
}

// ServeHTTP2 continues after BeginHTTP2.
func (p *Proxy) ServeHTTP2(s *http2.Stream) {
	d := s.State.(*http2Downstream)
	var err error
	if !d.decided {
		err = p.decide(s.Context(), d.x)
	}
	p.respondHTTP2(d, err)
}

// respondHTTP2 forwards the request or refuses it, and ends it.
func (p *Proxy) respondHTTP2(d *http2Downstream, err error) {
	defer d.release()
	x, s := d.x, d.Stream
	defer p.finish(s.Context(), x)
	p.respond(x, d, err)
	if release := s.BeforeEnd; release != nil { // the response was truncated
		s.BeforeEnd = nil
		release(func() {})
	}
	x.response.bytes = s.BodyBytesSent()
	x.response.streamReset = s.WasReset()
	d.body.End()
}

// http2Downstream returns a downstream for s: that of the last request of s, if possible.
func (p *Proxy) http2Downstream(s *http2.Stream) *http2Downstream {
	d, ok := s.State.(*http2Downstream)
	if !ok {
		d = new(http2Downstream)
		s.State = d
	}
	d.Stream = s
	d.begin(p, d)
	if s.Length != 0 && s.Protocol == "" {
		kind, _ := s.Fields.Value(http1.ContentType)
		d.body = &body.Reader{
			From: s, Deadlines: s, Timeout: p.timeouts.Body, Fields: s.Trailer, IsStream: strings.HasPrefix(kind, "application/grpc"),
		}
	}
	return d
}

// release releases the body of d, and prepares d for the next request.
func (d *http2Downstream) release() { *d = http2Downstream{reusable: d.end()} }

// readRequest fills the exchange from the request.
func (d *http2Downstream) readRequest() {
	s, x := d.Stream, d.x
	x.request.Method, x.request.HostField, x.request.Proto, x.request.RequestTarget = s.Method, s.Authority, "HTTP/2.0", s.Path
	if x.request.HostField == "" {
		x.request.Local = localAddress(s.LocalAddr())
	}
	x.in.scheme = "http"
	if s.Secure() {
		x.in.scheme = "https"
	}
	x.in.peer, x.in.header, x.in.length, x.in.parseErr = s.Peer(), &s.Fields, s.Length, s.Err
	if s.Protocol != "" && s.Err == nil {
		d.beginWebSocket()
	}
	x.readFieldNames(&s.Fields)
}

// respond sends a response by Weir itself, whether or not the request's body has been received.
func (d *http2Downstream) respond(a respond.Response) {
	if d.webSocketKey != "" && a.Status < 300 { // to the client this would mean that the tunnel is open
		a = respond.Problem(http.StatusBadRequest, errNoWebSocket.Error(), d.x.id)
	}
	d.x.response.status = a.Status
	d.x.forGRPC(&a)
	d.body.MarkResponseStarted()
	d.Start(a.Status)
	for i := range a.Fields {
		if f := &a.Fields[i]; f.Name != "Content-Length" {
			d.Add(f.Name, f.Value)
		}
	}
	d.AddKnown(http1.XRequestID, d.x.id)
	_ = d.Send(a.Body) // the client may have disconnected
}

// Begin implements upstream.Sink.
func (d *http2Downstream) Begin(status int, f *http1.Fields, length int64) error {
	d.body.MarkResponseStarted()
	if d.webSocketKey != "" && status < 300 { // to the client this would mean that the tunnel is open
		return errNoTunnel
	}
	return d.Stream.Begin(status, f, length)
}

// readAll implements bodyReader. The trailer is available at the end of the body and is forwarded
// as well.
func (d *http2Downstream) readAll(maxBytes int64) ([]byte, error) {
	if d.body == nil {
		return nil, nil
	}
	d.body.Limit(maxBytes)
	return d.x.readBody(&d.buffer, d.body, maxBytes, body.HTTP2Beside(d.x.in.length))
}

func (d *http2Downstream) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	t.Fields, t.ForceQuery = &d.Fields, strings.Contains(d.Path, "?")
	if d.webSocketKey != "" && !t.WebSocket {
		return upstream.Result{Kind: upstream.BadRequest, Err: errNoWebSocket}
	}
	if d.body != nil {
		d.body.Limit(d.x.route.MaxBody)
		t.Body = d.body
		d.x.setBody(t)
	}
	return p.Forward(d.Context(), t, d)
}

// beforeEnd implements downstream.
func (d *http2Downstream) beforeEnd(release func(flush func())) { d.BeforeEnd = release }

var (
	// errNoWebSocket reports that a route does not allow WebSocket.
	errNoWebSocket = errors.New("WebSocket not allowed")
	// errNoTunnel reports that an upstream has not accepted WebSocket as it must.
	errNoTunnel = errors.New("upstream has not switched to WebSocket")
)

// keyField and acceptField are the fields of the handshake that have no meaning in HTTP/2.
const keyField, acceptField = "Sec-WebSocket-Key", "Sec-WebSocket-Accept"

// beginWebSocket makes an extended CONNECT (RFC 8441) what it would be in HTTP/1.1: a GET request
// with an upgrade. All stages then treat both alike.
func (d *http2Downstream) beginWebSocket() {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	d.webSocketKey = base64.StdEncoding.EncodeToString(nonce[:])
	d.x.request.Method, d.x.in.length = http.MethodGet, 0
	d.Fields.Drop(keyField)
	d.Fields.Add("Upgrade", "websocket")
	d.Fields.Add("Connection", "Upgrade")
	d.Fields.Add(keyField, d.webSocketKey)
}

// SwitchProtocols implements upstream.Sink. It checks the handshake in place of the client, which
// has sent no key.
func (d *http2Downstream) SwitchProtocols(protocol string, f *http1.Fields) (net.Conn, []byte, error) {
	const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" // RFC 6455 section 1.3
	sum := sha1.Sum([]byte(d.webSocketKey + guid))
	if accept, _ := f.Lookup(acceptField); d.webSocketKey == "" || accept != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, nil, errNoTunnel
	}
	f.Drop(acceptField)
	return d.Stream.SwitchProtocols(protocol, f)
}
