package proxy

import (
	"net/http"
	"net/netip"

	"github.com/weir-proxy/weir/proxy/respond"
	"github.com/weir-proxy/weir/proxy/upstream"
)

// A httpDoor is the door of net/http's server.
type httpDoor struct {
	w http.ResponseWriter
	r *http.Request
	x *exchange
}

// ServeHTTP takes one request in and sees it out.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := p.exchanges.Get().(*exchange)
	x.method, x.authority, x.proto = r.Method, r.Host, r.Proto
	x.target, x.rawQuery = target(r), r.URL.RawQuery
	x.scheme = "http"
	if r.TLS != nil {
		x.scheme = "https"
	}
	x.header = r.Header
	x.peer, _ = netip.ParseAddrPort(r.RemoteAddr)

	d := &httpDoor{w: &counter{ResponseWriter: w, x: x}, r: r, x: x}
	p.serve(r.Context(), x, d)
	cut := x.result.Wrote && x.result.Kind != upstream.OK
	x.reset()
	p.exchanges.Put(x)
	if cut {
		panic(http.ErrAbortHandler) // how net/http wants a connection to be cut
	}
}

// target is the path of the request as it was sent.
func target(r *http.Request) string {
	if r.URL.Path == "*" {
		return "*"
	}
	return r.URL.EscapedPath()
}

func (d *httpDoor) answer(a respond.Answer) {
	a.Into(d.w.Header())
	d.w.Header().Set("X-Request-Id", d.x.id)
	d.w.WriteHeader(a.Status)
	if d.r.Method != http.MethodHead {
		d.w.Write(a.Body)
	}
}

func (d *httpDoor) forward(p *upstream.Pool, t *upstream.Trip) upstream.Result {
	return p.Forward(d.w, d.r, t)
}

// A counter notes what the client was sent.
type counter struct {
	http.ResponseWriter
	x *exchange
}

// Unwrap lets net/http find what the writer below can do.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *counter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		c.x.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(b []byte) (int, error) {
	if c.x.status == 0 {
		c.x.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(b)
	c.x.bytes += int64(n)
	return n, err
}
