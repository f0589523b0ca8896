package proxy

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// mostTakenBack is how many requests an HTTP/2 client may take back on one
// connection, as long as those are not more than half of all.
const mostTakenBack = 200

// A link is what is known of one client's connection over all its requests.
type link struct {
	net.Conn
	framing   *framing // nil where net/http reads HTTP/2 from TLS
	asked     atomic.Int64
	takenBack atomic.Int64
}

// linkKey is where a request's context holds its link.
type linkKey struct{}

// linked is http.Server's ConnContext.
func linked(ctx context.Context, c net.Conn) context.Context {
	l := &link{Conn: c}
	if c, ok := c.(interface{ of() *conn }); ok {
		l.framing = &c.of().framing
	}
	return context.WithValue(ctx, linkKey{}, l)
}

// overLinks is next for requests that come over links. A connection with faulty
// framing carries no request after this one (RFC 9112 section 6.1). One whose
// client asks only to take back is closed: each such request costs the upstream
// one, and the client nothing (RFC 9113 section 10.5).
func overLinks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, ok := r.Context().Value(linkKey{}).(*link)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if l.framing != nil && l.framing.faulty.Load() {
			w.Header().Set("Connection", "close")
		}
		if r.ProtoMajor == 2 {
			defer l.count(r.Context())
		}
		next.ServeHTTP(w, r)
	})
}

// count takes note of an HTTP/2 request that has ended.
func (l *link) count(ctx context.Context) {
	asked := l.asked.Add(1)
	if ctx.Err() == nil {
		return
	}
	if back := l.takenBack.Add(1); back > mostTakenBack && back > asked/2 {
		l.Close()
	}
}
