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
	// maxResets is how many requests an HTTP/2 client may take back (reset) on one
	// connection, as long as those are not more than half of all; of a repeat
	// offender, fewer.
	maxResets      = 200
	offenderResets = 20
	// pauseAfterResets is after how many of them a client's next requests wait for resetPause,
	// to see whether those are taken back too.
	pauseAfterResets = 10
	resetPause       = 2 * time.Millisecond
)

// A connState is what is known of one client's connection over all its requests.
type connState struct {
	net.Conn
	tracker  *resetTracker
	address  func() netip.Prefix // as offenders are counted
	requests atomic.Int64
	resets   atomic.Int64
}

// connStateKey is where a request's context holds the state of its connection.
type connStateKey struct{}

// withConn is http.Server's ConnContext. It must not ask c for its address, which may
// have to be read first.
func (s *Server) withConn(ctx context.Context, c net.Conn) context.Context {
	l := &connState{Conn: c, tracker: s.resetTracker}
	l.address = sync.OnceValue(func() netip.Prefix { return s.resetTracker.prefixOf(c) })
	return context.WithValue(ctx, connStateKey{}, l)
}

// withConnState is next for requests with a connState. A connection whose
// client asks only to take back is closed: each such request costs the upstream
// one, and the client nothing (RFC 9113 section 10.5). What is taken back before
// anything was done for it costs nothing here either.
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

// canceledEarly reports whether a request has been taken back before it was looked at. Where
// most have been, it waits for resetPause to see.
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

// recordEnd takes note of an HTTP/2 request that has ended.
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
