package limit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/view"
)

// penalize counts the refusals by limits that have a penalty, and bans a key that was refused too
// often. It is not called for a refusal by a ban. A key therefore costs at most penalty.after calls
// before its ban, and none during it. If the store is unreachable, the refusal is not counted; the
// request is refused anyway.
func (a *Admitter) penalize(ctx context.Context, q *Admission, by limiter.AdminStore) {
	for d := range q.Claims.Decided(q.Decision.Outcomes) {
		if d.Penalty == nil || d.Allowed || d.Banned {
			continue
		}
		if err := a.countRefusal(ctx, q, by, d.From, d.To); err != nil {
			q.Fail(fmt.Errorf("count refusal: %w", err))
		}
	}
}

// countRefusal counts one refusal by the limit of the claims from (inclusive) to to (exclusive), and
// bans their key if that was the last one allowed.
func (a *Admitter) countRefusal(ctx context.Context, q *Admission, by limiter.AdminStore, from, to int) error {
	of := q.Claims.Window(from).Of
	count := []limiter.Claim{{Limit: &of.RefusalLimit, Key: q.Claims[from].Key, Cost: 1, Source: q.Source}}
	var d limiter.Decision
	if err := by.Take(ctx, count, &d); err != nil {
		return err
	}
	if d.Allowed && d.Outcomes[0].Remaining > 0 {
		return nil
	}
	banned := q.Claims[from:to]
	if err := by.Ban(ctx, banned, of.Penalty.Ban); err != nil {
		return err
	}
	a.metrics.Bans.WithLabelValues(of.Route, of.Name).Inc()
	q.BanBegan = true
	for i := from; i < to; i++ {
		o := &q.Decision.Outcomes[i]
		o.Allowed, o.Unknown, o.Banned, o.Remaining, o.Wait = false, false, true, 0, max(o.Wait, of.Penalty.Ban)
		q.Decision.Wait = max(q.Decision.Wait, o.Wait)
	}
	err := by.Reset(ctx, count)
	if _, isFallback := by.(reporting); a.Announcer != nil && !isFallback && of.IsLocal() {
		a.spreadBan(ctx, banned, of.Penalty.Ban)
	}
	return err
}

// spreadBan makes a ban in the shared store known to the fallbacks of all nodes, so that it holds
// while the store is unreachable, also on nodes that have never seen the key. A node that cannot be
// notified, or starts later, knows of it once it sees the key.
func (a *Admitter) spreadBan(ctx context.Context, banned []limiter.Claim, ban time.Duration) {
	a.Fallback.RecordBan(banned, ban)
	if banned[0].Limit.Scope == limiter.PerClient {
		return // only this node has banned the key
	}
	_ = a.Announce(ctx, limiter.Change{Action: limiter.ActionBan, Ban: ban, Automatic: true}, banned) // the ban holds in the store
}

// resetCooldown starts to reset the cooldown and the ban that a key has under a limit. If the store is
// unreachable, they remain.
func (a *Admitter) resetCooldown(q *Admission, of *Limit, k *Key) {
	claims := view.Each(k.all(), func(k limiter.Key) limiter.Claim { return limiter.Claim{Limit: &of.Windows[0].Limit, Key: k, Cost: 1} })
	if err := a.Fallback.Local.Reset(context.Background(), claims); err != nil { // counted while the store was unreachable
		q.Fail(fmt.Errorf("reset cooldown: %w", err))
		return
	}
	wait := a.Store.StartReset(claims)
	q.Settled.start("reset cooldown", func() error {
		err := wait()
		if err == nil {
			a.metrics.Resets.WithLabelValues(of.Route, of.Name).Inc()
		}
		return err
	})
}

// An announcer is a store that notifies other processes of changes, and receives their
// notifications. See redisstore.Store.
type announcer interface {
	Announce(ctx context.Context, c limiter.Change) error
	OnChange(f func(limiter.Change))
}

// An AppliedChange is what became of a change of one limit.
type AppliedChange struct {
	Everywhere bool
	Affected   bool    // there was something to change
	Later      bool    // it waits for the store
	Granted    []int64 // for each claim: the permits that a grant has given back
	Repeated   bool    // the store timed out and was asked again
}

// ApplyToStore applies c to the store. It looks first whether the store answers: one that hangs would carry out
// Later what it was sent, however long after. The permits that a grant gives back are those as of then.
func (a *Admitter) ApplyToStore(ctx context.Context, c limiter.Change, claims []limiter.Claim) (done AppliedChange, err error) {
	in, err := a.Store.Inspect(ctx, claims)
	if err != nil {
		return done, err
	}
	done.Repeated = in.Repeated
	done.Affected = c.Ban > 0 || slices.ContainsFunc(in.Statuses, func(s limiter.KeyStatus) bool {
		return s.BannedFor > 0 || c.Action != limiter.ActionBan && (s.Used > 0 || s.Unreadable)
	})
	err = a.metrics.measure(string(c.Action), func() error { return c.Apply(ctx, a.Store, claims) })
	if c.Action != limiter.ActionGrant {
		return done, err
	}
	if errors.Is(err, limiter.ErrUnavailable) {
		return done, fmt.Errorf("no answer in time, it is not known whether the permits were granted; weir keys get tells: %v", err)
	}
	done.Granted = view.Each(in.Statuses, func(s limiter.KeyStatus) int64 { return min(c.Grant, max(s.Used, 0)) })
	return done, err
}

// Announce notifies the other nodes that c was applied to claims.
func (a *Admitter) Announce(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	for _, k := range KeysOf(claims) {
		c.Key, c.Limits = k, nil
		for _, claim := range claims {
			if claim.Key == k {
				c.Limits = append(c.Limits, claim.Limit.Name)
			}
		}
		if err := a.Announcer.Announce(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// KeysOf returns the keys of claims without duplicates.
func KeysOf(claims []limiter.Claim) []limiter.Key {
	return view.AddNew(nil, view.Each(claims, func(c limiter.Claim) limiter.Key { return c.Key })...)
}

// ApplyChange applies c to the local store. Granted permits are divided by the number of nodes.
func (f *Fallback) ApplyChange(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	if n := int64(f.Nodes()); c.Action == limiter.ActionGrant {
		c.Grant = (c.Grant + n - 1) / n
		claims = f.Shares(claims)
	}
	return c.Apply(ctx, f.Local, claims)
}

// A localDenier is a store that can refuse some claims without I/O, from a local cache of refusals.
// See redisstore.Store.
type localDenier interface {
	Denied(claims []limiter.Claim, d *limiter.Decision) bool
}
