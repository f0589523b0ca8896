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

// errStoreUnreachable reports that the store was not called, because it has been unreachable and
// not all proxies have reported yet what they granted meanwhile.
var errStoreUnreachable = fmt.Errorf("%w: it was unreachable, and permits granted meanwhile are reported first", limiter.ErrUnavailable)

// A fallback decides while the shared store is unreachable: each limit by its own policy, and those
// with on_store_failure: local in this process, with this node's share of the limit. The local
// store records what the shared store granted to this node recently; what is granted locally is
// reported to the shared store afterwards.
type fallback struct {
	local     *limiter.Memory
	nodeCount func() int // returns the number of proxies that are known to share the limits
	store     reporter   // nil if the store is never unreachable, or accepts no reports

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
	// Report makes the store count the permit p, which a fallback granted.
	Report(claims []limiter.Claim, p limiter.Permit)
	// Withdraw cancels the report of what p took for claims, and returns the claims of what was not pending.
	Withdraw(claims []limiter.Claim, p limiter.Permit) (others []limiter.Claim)
	// StartRefundReported refunds what was reported of p.
	StartRefundReported(claims []limiter.Claim, p limiter.Permit) (wait func() error)
	// RenewReported restarts the lease of what was reported of p.
	RenewReported(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error
}

func newFallback(store limiter.AdminStore, nodes func() int) *fallback {
	s := &fallback{local: limiter.NewMemory(limiter.MemoryOptions{}), nodeCount: nodes}
	s.store, _ = store.(reporter)
	return s
}

// nodes returns the number of proxies that share the limits, at least 1. After an outage nodes
// register again one by one. For a while nodes therefore returns at least the number before the
// outage: a node that cannot reach the store at that time would otherwise take too large a share.
func (f *fallback) nodes() int {
	n, before := int64(max(f.nodeCount(), 1)), f.lastNodes.Load()
	switch {
	case f.store == nil || n == before:
		return int(n)
	case n > before:
	case !f.store.Available():
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
	decideByStore decider = iota
	decideByShare         // the local store, without calling the shared store
	decideByBoth
)

// decider returns what decides about q. While the store is Settling, both stores do: permits
// granted by other nodes may not have been reported yet, so that no node may exceed its share; and
// as soon as one node uses only the shared store, the others must use it as well.
func (f *fallback) decider(q *admission) decider {
	if f.store == nil || !q.route.canFallBack {
		return decideByStore
	}
	settling := f.store.Settling() // first: when settling ends, the store is available already
	switch {
	case f.store.Available():
		return decideByStore
	case settling:
		return decideByBoth
	}
	return decideByShare
}

// takeWithinShare returns a taker that takes the claims of q by take, but no more than this node's share. It
// returns errStoreUnreachable if the share is used up. What it takes of the share is recorded in q.ofShare.
func (f *fallback) takeWithinShare(q *admission, take taker) taker {
	return func(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
		var own []limiter.Claim
		for i, c := range q.claims {
			if q.claims.window(i).of.OnStoreFailure == config.Local {
				own = append(own, c)
			}
		}
		own = f.shares(own)
		var share limiter.Decision
		if err := f.local.Take(ctx, own, &share); err != nil {
			return err
		}
		if !share.Allowed {
			return errStoreUnreachable
		}
		err := take(ctx, claims, d)
		if err != nil || !d.Allowed {
			return errors.Join(err, f.local.Refund(ctx, own, share.Permit))
		}
		q.ofShare = sharePermit{own, share.Permit}
		return nil
	}
}

// record records a decision of the shared store in the local store, if that may have to decide later.
func (f *fallback) record(q *admission) {
	if f.store != nil && q.route.hasLocalLimit {
		f.local.Mirror(q.claims, &q.decision, f.nodes())
	}
}

// recordBan records that the shared store has banned the keys of claims. Memory for it is bounded as
// for decisions: a ban is not recorded while half of the capacity for keys is in use.
func (f *fallback) recordBan(claims []limiter.Claim, ban time.Duration) {
	if f.store == nil {
		return
	}
	d := limiter.Decision{Outcomes: make([]limiter.Outcome, len(claims))}
	for i := range d.Outcomes {
		d.Outcomes[i] = limiter.Outcome{Banned: true, Wait: ban}
	}
	f.local.Mirror(claims, &d, f.nodes())
}

// decide decides about q, each limit by its own policy. A limit with deny refuses the request with
// errUndecided; a limit with allow is skipped.
func (f *fallback) decide(q *admission, m *limitMetrics) error {
	for i := range q.claims {
		if q.claims.window(i).of.OnStoreFailure == config.Deny {
			q.fallback = string(config.Deny)
			m.countFallback(q)
			m.countUnavailable(q, q.claims.window(i).of)
			return errUndecided
		}
	}
	q.fallback = string(config.Allow)
	left := q.claims[:0]
	for i, c := range q.claims {
		if q.claims.window(i).of.OnStoreFailure == config.Allow {
			m.countUnavailable(q, q.claims.window(i).of)
			continue
		}
		left = append(left, c)
		q.fallback = string(config.Local)
	}
	q.claims = left
	m.countFallback(q)
	if len(left) == 0 {
		q.decision = limiter.Decision{Allowed: true, Outcomes: q.decision.Outcomes[:0]}
		return nil
	}
	if err := f.local.Take(context.Background(), f.shares(q.claims), &q.decision); err != nil {
		return err
	}
	if f.store != nil && q.decision.Allowed {
		f.store.Report(q.claims, q.decision.Permit)
	}
	return nil
}

// shares returns claims on this node's share of their limits.
func (f *fallback) shares(claims []limiter.Claim) []limiter.Claim {
	out := slices.Clone(claims)
	for i := range out {
		share := out[i].Limit.Share(f.nodes())
		out[i].Limit, out[i].Cost = &share, min(out[i].Cost, share.Capacity())
	}
	return out
}

// returnHere returns on this node the permits that limits, which are of one subject, have granted in place of the store.
// It returns of how many decisions the store need not know any more; what was reported, the store returns itself.
func (f *fallback) returnHere(limits []*limiter.Limit, subject limiter.Key) (decisions int, err error) {
	withdrawn := map[[16]byte]bool{}
	err = f.local.ReturnEach(limits, subject, func(c limiter.Claim, p limiter.Permit) {
		if f.store != nil && len(f.store.Withdraw([]limiter.Claim{c}, p)) == 0 {
			withdrawn[p.ID] = true
		}
	})
	return len(withdrawn), err
}

// A mirrored is the shared store for permits that it granted. Refunds and renewals are applied to
// the fallback as well.
type mirrored struct {
	limiter.AdminStore
	fallback *fallback
}

// Refund implements limiter.Store.
func (m mirrored) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	m.fallback.local.MirrorRefund(claims, p, m.fallback.nodes())
	return m.AdminStore.Refund(ctx, claims, p)
}

// StartRefund implements starter.
func (m mirrored) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	m.fallback.local.MirrorRefund(claims, p, m.fallback.nodes())
	return startRefund(m.AdminStore, claims, p)
}

// StartReset implements starter.
func (m mirrored) StartReset(claims []limiter.Claim) (wait func() error) {
	return startReset(m.AdminStore, claims)
}

// Renew implements limiter.AdminStore.
func (m mirrored) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	_ = m.fallback.local.Renew(ctx, claims, p) // fails if the permit was not recorded there
	return m.AdminStore.Renew(ctx, claims, p)
}

// A sharePermit is a permit of the local store, with its claims on this node's share of the limits.
type sharePermit struct {
	claims []limiter.Claim
	permit limiter.Permit
}

// of returns the claims of p on the share of the limits of claims.
func (p *sharePermit) of(claims []limiter.Claim) (own []limiter.Claim) {
	for i := range p.claims {
		c := &p.claims[i]
		if slices.ContainsFunc(claims, func(of limiter.Claim) bool { return of.Limit.Name == c.Limit.Name && of.Key == c.Key }) {
			own = append(own, *c)
		}
	}
	return own
}

// A bothStores is the shared store for permits that it granted together with a sharePermit. Refunds and
// renewals are applied to both.
type bothStores struct {
	limiter.AdminStore
	local *limiter.Memory
	share sharePermit
}

// both returns the store of the permits that takeWithinShare has taken for q.
func (f *fallback) both(q *admission) bothStores { return bothStores{f.store, f.local, q.ofShare} }

// Refund implements limiter.Store.
func (b bothStores) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return errors.Join(b.local.Refund(ctx, b.share.of(claims), b.share.permit), b.AdminStore.Refund(ctx, claims, p))
}

// StartRefund implements starter.
func (b bothStores) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	err := b.local.Refund(context.Background(), b.share.of(claims), b.share.permit)
	refunded := startRefund(b.AdminStore, claims, p)
	return func() error { return errors.Join(err, refunded()) }
}

// StartReset implements starter.
func (b bothStores) StartReset(claims []limiter.Claim) (wait func() error) {
	return startReset(b.AdminStore, claims)
}

// Renew implements limiter.AdminStore.
func (b bothStores) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return errors.Join(b.local.Renew(ctx, b.share.of(claims), b.share.permit), b.AdminStore.Renew(ctx, claims, p))
}

// A reporting is the fallback for permits that it granted. Refunds and renewals are applied to the
// shared store as well, if the permit was reported to it.
type reporting struct {
	*limiter.Memory
	fallback *fallback
}

// Refund implements limiter.Store.
func (r reporting) Refund(_ context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return r.StartRefund(claims, p)()
}

// StartRefund implements starter.
func (r reporting) StartRefund(claims []limiter.Claim, p limiter.Permit) (wait func() error) {
	err := r.Memory.Refund(context.Background(), r.fallback.shares(claims), p)
	if r.fallback.store == nil {
		return func() error { return err }
	}
	refunded := r.fallback.store.StartRefundReported(claims, p)
	return func() error { return errors.Join(err, refunded()) }
}

// Renew implements limiter.AdminStore.
func (r reporting) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := r.Memory.Renew(ctx, claims, p); err != nil || r.fallback.store == nil {
		return err
	}
	return r.fallback.store.RenewReported(ctx, claims, p)
}
