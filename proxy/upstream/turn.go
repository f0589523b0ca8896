package upstream

import (
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
	for {
		var u turn
		trace := httptrace.ClientTrace{GotConn: u.begin, GotFirstResponseByte: u.check}
		res, err := t.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &trace)))
		if err != nil || !u.unasked.Load() {
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
	conn    *conn // nil if it is a new one
	unasked atomic.Bool
}

// begin notes which connection it is; net/http may try one after another.
func (u *turn) begin(info httptrace.GotConnInfo) {
	u.conn = nil
	u.unasked.Store(false)
	if !info.Reused {
		return
	}
	raw := info.Conn
	if over, ok := raw.(*tls.Conn); ok {
		raw = over.NetConn()
	}
	if u.conn, _ = raw.(*conn); u.conn != nil {
		u.conn.turn()
	}
}

// check ends a connection on which the answer came before the request.
func (u *turn) check() {
	if u.conn != nil && u.conn.unasked() {
		u.unasked.Store(true)
		u.conn.Close()
	}
}
