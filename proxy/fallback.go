package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// errStoreUnreachable reports that the store was not asked, because it has been away and
// not every proxy has told it yet what it let pass meanwhile.
var errStoreUnreachable = fmt.Errorf("%w: it was unreachable, and permits granted meanwhile are reported first", limiter.ErrUnavailable)

// A fallback decides in place of the shared store while that one cannot: each
// limit by its own policy, and those that are local in this process, for this
// node's share. It knows what the store granted to this node recently, and the
// store hears afterwards of what was granted here.
type fallback struct {
	local *limiter.Memory
	live  func() int // how many proxies share the limits, as far as is known
	store reporter   // nil: the store never is away, or hears of nothing

	before          atomic.Int64 // as live, and no fewer than there were before the store was unreachable
	lastUnreachable atomic.Int64 // ns; when the store was last found away
}

// memberGrace is how long after the store is back nodes may not have been heard of: more than
// they live without a sign of life.
const memberGrace = 30 * time.Second

// A reporter is a store that hears of what was granted in its place.
// redisstore.Store is one and says more.
type reporter interface {
	limiter.AdminStore
	// Available is false while decisions are made in its place.
	Available() bool
	// Settling is true while it is not Available but answers: it knows what this
	// process has granted, and not yet what others have.
	Settling() bool
	// Report has the store count what p took of a fallback.
	Report(claims []limiter.Claim, p limiter.Permit)
	// Withdraw takes a report back, and says whether that was in time.
	Withdraw(claims []limiter.Claim, p limiter.Permit) bool
}

func newFallback(store limiter.AdminStore, nodes func() int) *fallback {
	s := &fallback{local: limiter.NewMemory(limiter.MemoryOptions{}), live: nodes}
	s.store, _ = store.(reporter)
	return s
}

// nodes is how many proxies share the limits, at least 1. A store that was away hears
// of them one by one: for a while there are no fewer than before, or whoever fails to
// reach it just then would have a share too large.
func (s *fallback) nodes() int {
	n, before := int64(max(s.live(), 1)), s.before.Load()
	switch {
	case s.store == nil || n == before:
		return int(n)
	case n > before:
	case !s.store.Available():
		s.lastUnreachable.Store(time.Now().UnixNano())
		return int(before)
	case time.Now().UnixNano()-s.lastUnreachable.Load() < int64(memberGrace):
		return int(before)
	}
	s.before.Store(n)
	return int(n)
}

// A decider is who decides about a request now.
type decider int

const (
	decideByStore decider = iota
	decideByShare         // here, without asking the store
	decideByBoth
)

// decider says who decides about q. While the store settles, both do: of what other nodes
// granted meanwhile the store may not have heard yet, so none may have more than its share;
// and as soon as one of them goes by the store alone, the others must ask it as well.
func (s *fallback) decider(q *admission) decider {
	if s.store == nil || !q.route.standsIn {
		return decideByStore
	}
	settling := s.store.Settling() // first: when settling ends, the store is available already
	switch {
	case s.store.Available():
		return decideByStore
	case settling:
		return decideByBoth
	}
	return decideByShare
}

// within is take for q, with no more than this node's share. errStoreUnreachable reports that the
// share is used up.
func (s *fallback) within(q *admission, take taker) taker {
	return func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		var own []limiter.Claim
		for i, c := range q.claims.claims {
			if q.claims.windows[i].of.OnStoreFailure == config.Local {
				own = append(own, c)
			}
		}
		own = s.shares(own)
		var share limiter.Decision
		if err := s.local.Take(ctx, own, &share); err != nil {
			return err
		}
		if !share.Allowed {
			return errStoreUnreachable
		}
		err := take(ctx, claims, d)
		if err != nil || !d.Allowed {
			return errors.Join(err, s.local.Refund(ctx, own, share.Permit))
		}
		return nil
	}
}

// note remembers what the store has said, as far as it may be asked here later.
func (s *fallback) note(q *admission) {
	if s.store != nil && q.route.local {
		s.local.Note(q.claims.claims, &q.decision, s.nodes())
	}
}

// decide decides q, each limit by its own policy: one that denies refuses the
// request, one that allows is left out. errUndecided reports that one denied.
func (s *fallback) decide(q *admission, m *metrics) error {
	for i := range q.claims.claims {
		if q.claims.windows[i].of.OnStoreFailure == config.Deny {
			q.fallback = string(config.Deny)
			m.fellBack(q)
			m.unasked(q, q.claims.windows[i].of)
			return errUndecided
		}
	}
	q.fallback = string(config.Allow)
	left := q.claims.none()
	for i, c := range q.claims.claims {
		if q.claims.windows[i].of.OnStoreFailure == config.Allow {
			m.unasked(q, q.claims.windows[i].of)
			continue
		}
		left.add(c, q.claims.windows[i])
		q.fallback = string(config.Local)
	}
	q.claims = left
	m.fellBack(q)
	if len(left.claims) == 0 {
		q.decision = limiter.Decision{Allowed: true, Outcomes: q.decision.Outcomes[:0]}
		return nil
	}
	if err := s.local.Take(context.Background(), s.shares(q.claims.claims), &q.decision); err != nil {
		return err
	}
	if s.store != nil && q.decision.Allowed {
		s.store.Report(q.claims.claims, q.decision.Permit)
	}
	return nil
}

// shares are claims to this node's part of their limits.
func (s *fallback) shares(claims []limiter.Claim) []limiter.Claim {
	out := slices.Clone(claims)
	for i := range out {
		share := out[i].Limit.Share(s.nodes())
		out[i].Limit, out[i].Cost = &share, min(out[i].Cost, share.Most())
	}
	return out
}

// A mirrored is the shared store for whoever got permits from it: what becomes of
// them is known to the fallback as well.
type mirrored struct {
	limiter.AdminStore
	fallback *fallback
}

// Refund implements limiter.Store.
func (t mirrored) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	t.fallback.local.NoteRefund(claims, p, t.fallback.nodes())
	return t.AdminStore.Refund(ctx, claims, p)
}

// Renew implements limiter.AdminStore.
func (t mirrored) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	_ = t.fallback.local.Renew(ctx, claims, p) // what was not noted is not known there
	return t.AdminStore.Renew(ctx, claims, p)
}

// A reporting is the fallback for whoever got permits from it: what becomes of them
// is told to the store, if that has heard of them.
type reporting struct {
	*limiter.Memory
	fallback *fallback
}

// Refund implements limiter.Store.
func (d reporting) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := d.Memory.Refund(ctx, d.fallback.shares(claims), p); err != nil {
		return err
	}
	store := d.fallback.store
	if store == nil || store.Withdraw(claims, p) || !store.Available() {
		return nil
	}
	return store.Refund(ctx, claims, p)
}

// Renew implements limiter.AdminStore.
func (d reporting) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := d.Memory.Renew(ctx, claims, p); err != nil {
		return err
	}
	switch store := d.fallback.store; {
	case store == nil:
	case store.Withdraw(claims, p):
		store.Report(claims, p) // as young as it is now
	case store.Available():
		return store.Renew(ctx, claims, p)
	}
	return nil
}
