package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// errLeftover says that the only answer to a request was there before it was sent.
var errLeftover = errors.New("the target had sent more than its last answer")

// A oneByOne sends requests of HTTP/1.1 over connections that are used again. What
// a target sends behind an answer is never taken for the next one (RFC 9112 6.3):
// net/http looks for such bytes when a connection is at rest, and does not see them
// if the next request is quicker.
type oneByOne struct{ *http.Transport }

// RoundTrip sends r on another connection when bytes are left over on the one it
// was to take; the target has seen nothing of it then. A request with a body,
// which may have been read already, fails instead.
func (t oneByOne) RoundTrip(r *http.Request) (*http.Response, error) {
	u, watched := r.Context().Value(turnKey{}).(*turn)
	if !watched {
		u = new(turn)
	}
	for {
		trace := httptrace.ClientTrace{GotConn: u.begin, GotFirstResponseByte: u.check}
		res, err := t.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &trace)))
		if err != nil || !u.isSpoiled() {
			return res, err
		}
		res.Body.Close()
		if r.Body != nil && r.Body != http.NoBody {
			return nil, errLeftover
		}
	}
}

// A turn is a request's on a connection that was used before.
type turn struct {
	conn    atomic.Pointer[conn] // nil if it is a new one
	spoiled atomic.Pointer[conn] // the last on which something was left over, which may still be read there
}

// isSpoiled reports whether the answer was there before the request.
func (u *turn) isSpoiled() bool {
	c := u.conn.Load()
	return c != nil && c == u.spoiled.Load()
}

// wasSpoiled reports whether one was, on this connection or one tried before.
func (u *turn) wasSpoiled() bool { return u.spoiled.Load() != nil }

// watched is ctx for a request whose turn is u, by which 1xx answers are told apart
// that were left over.
func (u *turn) watched(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{}, u)
}

type turnKey struct{}

// begin notes which connection it is; net/http may try one after another.
func (u *turn) begin(info httptrace.GotConnInfo) {
	u.conn.Store(nil)
	if !info.Reused {
		return
	}
	raw := info.Conn
	if over, ok := raw.(*tls.Conn); ok {
		raw = over.NetConn()
	}
	if c, ok := raw.(*conn); ok {
		c.turn()
		u.conn.Store(c)
	}
}

// check ends a connection on which the answer came before the request.
func (u *turn) check() {
	if c := u.conn.Load(); c != nil && c.unasked() {
		u.spoiled.Store(c)
		c.Close()
	}
}
