package frontend

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxResets is the number of requests that an HTTP/2 client may reset on one
	// connection, as long as they are not more than half of all its requests.
	// offenderResets replaces it for addresses with a penalty.
	maxResets      = 200
	offenderResets = 20
	// pauseAfterResets is the number of resets after which each further request waits
	// for resetPause, to see whether it is reset, too.
	pauseAfterResets = 10
	resetPause       = 2 * time.Millisecond
)

// A connState counts the requests and resets of one HTTP/2 connection.
type connState struct {
	net.Conn
	tracker  *resetTracker
	address  func() netip.Prefix // the key for the resetTracker
	requests atomic.Int64
	resets   atomic.Int64
}

// connStateKey is the context key of the connState.
type connStateKey struct{}

// withConn is the ConnContext of http.Server. It must not call c.RemoteAddr, which may
// block until the PROXY header has been read.
func (s *Server) withConn(ctx context.Context, c net.Conn) context.Context {
	l := &connState{Conn: c, tracker: s.resetTracker}
	l.address = sync.OnceValue(func() netip.Prefix { return s.resetTracker.prefixOf(c) })
	return context.WithValue(ctx, connStateKey{}, l)
}

// withConnState counts the requests and resets of each connection. It closes a
// connection whose client resets most of its requests (rapid reset, CVE-2023-44487):
// each of these costs the upstream a request, and the client almost nothing (RFC 9113
// section 10.5). A request that was reset before this handler runs is not passed to
// next.
func withConnState(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, ok := r.Context().Value(connStateKey{}).(*connState)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		defer l.recordEnd(r.Context())
		if l.canceledEarly(r.Context()) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// canceledEarly reports whether the request was reset before any work was done for it.
// If most requests of the connection were reset, it first waits for resetPause.
func (s *connState) canceledEarly(ctx context.Context) bool {
	if back := s.resets.Load(); back > pauseAfterResets && back > s.requests.Load()/2 {
		timer := time.NewTimer(resetPause)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	return ctx.Err() != nil
}

// recordEnd counts a request that has ended.
func (s *connState) recordEnd(ctx context.Context) {
	asked := s.requests.Add(1)
	if ctx.Err() == nil {
		s.tracker.recordCompleted(s.address(), time.Now())
		return
	}
	most := int64(maxResets)
	if s.tracker.recordReset(s.address(), time.Now()) {
		most = offenderResets
	}
	if back := s.resets.Add(1); back > most && back > asked/2 {
		s.Close()
	}
}
