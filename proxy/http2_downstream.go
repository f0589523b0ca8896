package proxy

import (
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
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

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
	read, err := d.x.readBody(&d.buffer, d.body, maxBytes, body.HTTP2Beside(d.x.in.length))
	d.content = read
	return read, err
}

func (d *http2Downstream) forward(p *upstream.Pool, t *upstream.Request) upstream.Result {
	t.Fields, t.ForceQuery = &d.Fields, strings.Contains(d.Path, "?")
	if d.webSocketKey != "" && !t.WebSocket {
		return upstream.Result{Kind: upstream.BadRequest, Err: errNoWebSocket}
	}
	if d.body != nil {
		d.body.Limit(d.x.route.MaxBody)
		t.Body = d.body
		d.setBody(t)
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
