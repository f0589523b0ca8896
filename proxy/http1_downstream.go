package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// An http1Downstream is the downstream of HTTP/1.1. The strings that it brings point into a
// connection's buffer: what outlives the handler is cloned (exchange.keep).
type http1Downstream struct {
	h      *http1.Exchange
	x      *exchange // kept for the next request, unless it outlives this one
	here   http1.Context
	duplex http1.Duplex // of h, once it is forwarded
	kept   buffer       // what whole has read of the body
	read   []byte       // in kept; nil if nobody asked
}

// ServeHTTP1 takes one request in and sees it out.
func (p *Proxy) ServeHTTP1(h *http1.Exchange) {
	if h.Target() == "*" { // OPTIONS, about this server
		h.Begin(http.StatusOK)
		_ = h.Send(nil) // the client may have left
		return
	}
	d := p.http1Downstream(h)
	defer p.leaveHTTP1(d)
	x := d.x
	d.enter()
	defer p.finish(&d.here, x)
	p.serve(&d.here, x, d)
	if release := h.BeforeEnd; release != nil { // the response broke off before its end
		h.BeforeEnd = nil
		release(func() {})
	}
	x.answer.bytes = h.BodyBytesSent()
	if x.outcome.result.HeaderSent && x.outcome.result.Kind != upstream.OK {
		h.Abort()
	}
}

// http1Downstream is the downstream for h.
func (p *Proxy) http1Downstream(h *http1.Exchange) *http1Downstream {
	d, ok := p.downstreams.Get().(*http1Downstream)
	if !ok {
		d = new(http1Downstream)
	}
	if d.x == nil {
		d.x = p.exchanges.Get().(*exchange)
		d.x.owned = true
	}
	d.h, d.here.Exchange = h, h
	d.kept.all = p.buffers
	d.x.in.body = d
	return d
}

// leaveHTTP1 gives up what d has kept, and d itself for another request, unless
// somebody may still wait for the client of this one to leave.
func (p *Proxy) leaveHTTP1(d *http1Downstream) {
	d.kept.free()
	if d.here.Observed() {
		return
	}
	d.h, d.here.Exchange, d.read = nil, nil, nil
	p.downstreams.Put(d)
}

// enter makes an exchange of the request.
func (d *http1Downstream) enter() {
	h, x := d.h, d.x
	x.request.Method, x.request.HostField, x.request.Proto, x.request.RequestTarget = h.Method(), h.Host(), h.Proto(), h.Target()
	if x.request.HostField == "" {
		x.request.Local = localAddress(h.NetConn())
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
	asks := x.request.Method == http.MethodOptions
	if !asks && !h.Fields.HasUnusualNames() {
		return
	}
	for f := range h.Fields.All() {
		plain := key.IsPlainHeader(f.Name)
		if plain && (!asks || f.ID == http1.Host) {
			continue
		}
		name := http.CanonicalHeaderKey(f.Name)
		if !plain {
			x.in.odd = append(x.in.odd, name)
		}
		if asks && !browsersSend(name) {
			x.in.unasked = append(x.in.unasked, name)
		}
	}
}

// localAddress is the address that the client has connected to.
func localAddress(c net.Conn) string {
	if at, ok := c.LocalAddr().(*net.TCPAddr); ok {
		return at.String()
	}
	return "localhost" // by a socket of this machine
}

// answer sends a response of ours, whether or not the request's body has come.
// What has not is read afterwards if that saves the connection.
func (d *http1Downstream) answer(a respond.Response) {
	h, x := d.h, d.x
	x.answer.status = a.Status
	head := h.Begin(a.Status)
	for _, f := range a.Fields {
		if f.Name != "Content-Length" {
			head.Add(f.Name, f.Value)
		}
	}
	head.Add("X-Request-Id", x.id)
	_ = h.Send(a.Body) // the client may have left
}

// readAll implements carrier. The trailer has come with the end of the body, so it
// is forwarded as well.
func (d *http1Downstream) readAll(most int64) ([]byte, error) {
	b := d.h.Body()
	if b == nil {
		return nil, nil
	}
	b.Limit(most)
	d.kept.client = d.x.client.network
	if announced := d.x.in.length; announced >= 0 {
		most = min(most, announced)
	}
	read, err := d.kept.read(b, most)
	switch {
	case errors.Is(err, http1.ErrBodyTooLarge):
		return nil, fmt.Errorf("%w: more than %d bytes", key.ErrBodyTooLarge, most)
	case errors.Is(err, errBuffersFull):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	d.read = read
	if read == nil {
		d.read = []byte{}
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
		t.Body, t.BufferedBody = &d.duplex, d.read
	}
	return p.Forward(&d.here, t, &d.duplex)
}

// beforeEnd implements downstream.
func (d *http1Downstream) beforeEnd(release func(flush func())) { d.h.BeforeEnd = release }

// keep clones what is still needed of x when its downstream has ended.
func (x *exchange) keep() {
	d, borrowed := x.in.body.(*http1Downstream)
	if !borrowed {
		return
	}
	d.x, x.owned = nil, false // it outlives the downstream
	for _, s := range []*string{&x.id, &x.in.userAgent, &x.in.referer} {
		*s = strings.Clone(*s)
	}
	x.request.Keep()
	x.in.header, x.in.body = noFields{}, nil
}

// RejectHTTP1 answers what could not be read as a request.
func (p *Proxy) RejectHTTP1(h *http1.Exchange, why error) {
	d := p.http1Downstream(h)
	defer p.leaveHTTP1(d)
	x := d.x
	x.in.header, x.in.peer, x.in.fault = noFields{}, h.Peer(), why
	defer p.finish(&d.here, x)
	p.recorder.arrive(x)
	g := p.enter()
	x.generation = g
	g.address.resolve(x)
	p.recorder.name(x)
	d.answer(g.refuse(x, why))
	x.answer.bytes = h.BodyBytesSent()
}

// parseFailure is what to say of a request that http1 refuses, none for any other error.
func parseFailure(err error) (respond.Kind, bool) {
	var refusal *http1.Error
	if !errors.As(err, &refusal) {
		return 0, false
	}
	kinds := []respond.Kind{
		respond.BadRequest, respond.RequestTimeout, respond.TargetTooLong, respond.HeaderTooLarge, respond.NotImplemented,
		respond.ExpectationFailed, respond.VersionNotSupported,
	}
	i := slices.IndexFunc(kinds, func(k respond.Kind) bool { return k.Status() == refusal.Status })
	return kinds[max(i, 0)], true
}

var _ context.Context = &http1.Context{}
