package limit

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

// ErrStoreUnreachable reports that the store was not called, because it has been unreachable and
// not all proxies have reported yet what they granted meanwhile.
var ErrStoreUnreachable = fmt.Errorf("%w: it was unreachable, and permits granted meanwhile are reported first", limiter.ErrUnavailable)

// A Fallback decides while the shared store is unreachable: each limit by its own policy, and those
// with on_store_failure: local in this process, with this node's share of the limit. The local
// Store records what the shared store granted to this node recently; what is granted locally is
// reported to the shared store afterwards.
type Fallback struct {
	Local     *limiter.Memory
	nodeCount func() int // returns the number of proxies that are known to share the limits
	Store     reporter   // nil if the store is never unreachable, or accepts no reports

	lastNodes       atomic.Int64 // as live; while the store recovers, at least the number before the outage
	lastUnreachable atomic.Int64 // when the store was last found unreachable, in nanoseconds since 1970
}

// memberGrace is how long after an outage of the store some nodes may not be registered again. It
// exceeds the time after which a node without a heartbeat is removed.
const memberGrace = 30 * time.Second

// A reporter is a store to which permits that were granted in its place are reported. See
// redisstore.Store.
type reporter interface {
	limiter.AdminStore
	// Available reports whether the store decides. It does not while a fallback decides in its
	// place.
	Available() bool
	// Settling reports whether the store is reachable but not yet Available: this process has
	// reported its permits, other processes may not have.
	Settling() bool
	// Withdraw cancels the report of what p took for claims, and returns the claims of what was not pending.
	Withdraw(claims []limiter.Claim, p limiter.Permit) (others []limiter.Claim)
	// StartRefundReported refunds what was reported of p.
	StartRefundReported(claims []limiter.Claim, p limiter.Permit) (wait func() error)
	// RenewReported restarts the lease of what was reported of p.
	RenewReported(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error
}

func NewFallback(store limiter.AdminStore, nodes func() int) *Fallback {
	s := &Fallback{Local: limiter.NewMemory(limiter.MemoryOptions{}), nodeCount: nodes}
	s.Store, _ = store.(reporter)
	return s
}

// Nodes returns the number of proxies that share the limits, at least 1. After an outage nodes
// register again one by one. For a while nodes therefore returns at least the number before the
// outage: a node that cannot reach the store at that time would otherwise take too large a share.
func (f *Fallback) Nodes() int {
	n, before := int64(max(f.nodeCount(), 1)), f.lastNodes.Load()
	switch {
	case f.Store == nil || n == before:
		return int(n)
	case n > before:
	case !f.Store.Available():
		f.lastUnreachable.Store(time.Now().UnixNano())
		return int(before)
	case time.Now().UnixNano()-f.lastUnreachable.Load() < int64(memberGrace):
		return int(before)
	}
	f.lastNodes.Store(n)
	return int(n)
}

// A decider selects what decides about a request.
type decider int

const (
	DecideByStore decider = iota
	decideByShare         // the local store, without calling the shared store
	decideByBoth
)

// decider returns what decides about q. While the store is Settling, both stores do: permits
// granted by other nodes may not have been reported yet, so that no node may exceed its share; and
// as soon as one node uses only the shared store, the others must use it as well.
func (f *Fallback) decider(q *Admission) decider {
	if f.Store == nil || !q.Claims.AnyLimit((*Limit).IsLocal) || q.Claims.Denies() {
		return DecideByStore
	}
	settling := f.Store.Settling() // first: when settling ends, the store is available already
	switch {
	case f.Store.Available():
		return DecideByStore
	case settling:
		return decideByBoth
	}
	return decideByShare
}

// takeWithinShare returns a taker that takes the claims of q by take, but no more than this node's share. It
// returns errStoreUnreachable if the share is used up. What it takes of the share is recorded in q.ofShare.
func (f *Fallback) takeWithinShare(q *Admission, take taker) taker {
	return func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		var own []limiter.Claim
		for i, c := range q.Claims {
			if q.Claims.Window(i).Of.IsLocal() {
				own = append(own, c)
			}
		}
		own = f.Shares(own)
		var share limiter.Decision
		if err := f.Local.Take(ctx, own, &share); err != nil {
			return err
		}
		if !share.Allowed {
			return ErrStoreUnreachable
		}
		err := take(ctx, claims, d)
		if err != nil || !d.Allowed {
			return errors.Join(err, f.Local.Refund(ctx, own, share.Permit))
		}
		q.ofShare = SharePermit{own, share.Permit}
		return nil
	}
}

// record records a decision of the shared store in the local store, if that may have to decide later.
func (f *Fallback) record(q *Admission) {
	if f.Store != nil && q.Claims.AnyLimit((*Limit).IsLocal) {
		f.Local.Mirror(q.Claims, &q.Decision, f.Nodes())
	}
}

// RecordBan records that the shared store has banned the keys of claims. Memory for it is bounded as
// for decisions: a ban is not recorded while half of the capacity for keys is in use.
func (f *Fallback) RecordBan(claims []limiter.Claim, ban time.Duration) {
	if f.Store == nil {
		return
	}
	d := limiter.Decision{Outcomes: slices.Repeat([]limiter.Outcome{{Banned: true, Wait: ban}}, len(claims))}
	f.Local.Mirror(claims, &d, f.Nodes())
}

// decide decides about q, each limit by its own policy. A limit with deny refuses the request with
// errUndecided; a limit with allow is skipped.
func (f *Fallback) decide(q *Admission, m *Metrics) error {
	for i := range q.Claims {
		if q.Claims.Window(i).Of.OnStoreFailure == config.Deny {
			q.Fallback = string(config.Deny)
			m.Fallbacks.WithLabelValues(q.Fallback).Inc()
			m.decision(q.Claims.Window(i).Of, Unavailable).Inc(q.Stripe)
			return ErrUndecided
		}
	}
	q.Fallback = string(config.Allow)
	left := q.Claims[:0]
	for i, c := range q.Claims {
		if q.Claims.Window(i).Of.OnStoreFailure == config.Allow {
			m.decision(q.Claims.Window(i).Of, Unavailable).Inc(q.Stripe)
			continue
		}
		left = append(left, c)
		q.Fallback = string(config.Local)
	}
	q.Claims = left
	m.Fallbacks.WithLabelValues(q.Fallback).Inc()
	if len(left) == 0 {
		q.Decision = limiter.Decision{Allowed: true, Outcomes: q.Decision.Outcomes[:0]}
		return nil
	}
	if err := f.Local.Take(context.Background(), f.Shares(q.Claims), &q.Decision); err != nil {
		return err
	}
	if f.Store != nil && q.Decision.Allowed {
		f.Store.Report(q.Claims, q.Decision.Permit)
	}
	return nil
}

// Shares returns claims on this node's share of their limits. Of one that is refunded in part, what was used stays taken of it.
func (f *Fallback) Shares(claims []limiter.Claim) (own []limiter.Claim) {
	for _, c := range claims {
		share, used := c.Limit.Share(f.Nodes()), max(c.Taken-c.Cost, 0)
		if c.Limit, c.Cost = &share, min(used+c.Cost, share.Capacity())-used; c.Cost > 0 {
			own = append(own, c)
		}
	}
	return own
}

// returnHere returns on this node the permits that limits, which are of one subject, have granted in place of the store.
// It returns of how many decisions the store need not know any more; what was reported, the store returns itself.
func (f *Fallback) returnHere(limits []*limiter.Limit, subject limiter.Key) (decisions int, err error) {
	withdrawn := map[[16]byte]bool{}
	err = f.Local.ReturnEach(limits, subject, func(c limiter.Claim, p limiter.Permit) {
		if f.Store != nil && len(f.Store.Withdraw([]limiter.Claim{c}, p)) == 0 {
			withdrawn[p.ID] = true
		}
	})
	return len(withdrawn), err
}

// A mirrored is the shared store for permits that it granted. Refunds and renewals are applied to
// the fallback as well.
type mirrored struct {
	limiter.AdminStore
	fallback *Fallback
}

// StartRefund implements limiter.AdminStore.
func (m mirrored) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	m.fallback.Local.MirrorRefund(claims, p, m.fallback.Nodes())
	return m.AdminStore.StartRefund(claims, p)
}

// Charge implements limiter.AdminStore.
func (m mirrored) Charge(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	m.fallback.Local.MirrorCharge(claims)
	return m.AdminStore.Charge(ctx, claims, p)
}

// Renew implements limiter.AdminStore.
func (m mirrored) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	_ = m.fallback.Local.Renew(ctx, claims, p) // fails if the permit was not recorded there
	return m.AdminStore.Renew(ctx, claims, p)
}

// A SharePermit is a permit of the local store, with its claims on this node's share of the limits.
type SharePermit struct {
	Claims []limiter.Claim
	permit limiter.Permit
}

// Of returns the claims of p on the share of the limits of claims, as Shares does.
func (p *SharePermit) Of(claims []limiter.Claim) (own []limiter.Claim) {
	for _, c := range p.Claims {
		i := slices.IndexFunc(claims, func(of limiter.Claim) bool { return of.Limit.Name == c.Limit.Name && of.Key == c.Key })
		if i < 0 {
			continue
		}
		if c.Cost -= max(claims[i].Taken-claims[i].Cost, 0); c.Cost > 0 {
			own = append(own, c)
		}
	}
	return own
}

// A bothStores is the shared store for permits that it granted together with a sharePermit. Refunds and
// renewals are applied to both.
type bothStores struct {
	limiter.AdminStore
	local *limiter.Memory
	share SharePermit
}

// both returns the store of the permits that takeWithinShare has taken for q.
func (f *Fallback) both(q *Admission) bothStores { return bothStores{f.Store, f.Local, q.ofShare} }

// StartRefund implements limiter.AdminStore.
func (b bothStores) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	err := b.local.Refund(context.Background(), b.share.Of(claims), b.share.permit)
	refunded := b.AdminStore.StartRefund(claims, p)
	return func() error { return errors.Join(err, refunded()) }
}

// Renew implements limiter.AdminStore.
func (b bothStores) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return errors.Join(b.local.Renew(ctx, b.share.Of(claims), b.share.permit), b.AdminStore.Renew(ctx, claims, p))
}

// A reporting is the fallback for permits that it granted. Refunds and renewals are applied to the
// shared store as well, if the permit was reported to it.
type reporting struct {
	limiter.AdminStore
	fallback *Fallback
}

// reporting returns the store of the permits that f has granted.
func (f *Fallback) reporting() reporting { return reporting{f.Local, f} }

// StartRefund implements limiter.AdminStore.
func (r reporting) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	refunded := r.AdminStore.StartRefund(r.fallback.Shares(claims), p)
	if r.fallback.Store == nil {
		return refunded
	}
	reported := r.fallback.Store.StartRefundReported(claims, p)
	return func() error { return errors.Join(refunded(), reported()) }
}

// Charge implements limiter.AdminStore.
func (r reporting) Charge(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	own := r.fallback.Shares(claims)
	for i := range own {
		own[i].Cost = claims[i].Cost // a debt may exceed the share
	}
	err := r.AdminStore.Charge(ctx, own, p)
	if r.fallback.Store == nil {
		return err
	}
	return errors.Join(err, r.fallback.Store.Charge(ctx, claims, p))
}

// Renew implements limiter.AdminStore.
func (r reporting) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	err := r.AdminStore.Renew(ctx, claims, p)
	if r.fallback.Store == nil {
		return err
	}
	return errors.Join(err, r.fallback.Store.RenewReported(ctx, claims, p))
}

// Report implements limiter.AdminStore.
func (r reporting) Report(claims []limiter.Claim, p limiter.Permit) {
	if r.AdminStore.Report(claims, p); r.fallback.Store != nil {
		r.fallback.Store.Report(claims, p)
	}
}
