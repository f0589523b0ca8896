package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// penalize counts the refusals by limits that have a penalty, and bans a key that was refused too
// often. It is not called for a refusal by a ban. A key therefore costs at most penalty.after calls
// before its ban, and none during it. If the store is unreachable, the refusal is not counted; the
// request is refused anyway.
func (a *admitter) penalize(ctx context.Context, q *admission, by limiter.AdminStore) {
	for from, to := 0, 0; from < len(q.claims); from = to {
		var of *limit
		var said limiter.Outcome
		if of, to, said = q.claims.decidedAt(from, q.decision.Outcomes); of.Penalty == nil || said.Allowed || said.Banned {
			continue
		}
		if err := a.countRefusal(ctx, q, by, from, to); err != nil {
			q.fail(fmt.Errorf("count refusal: %w", err))
		}
	}
}

// countRefusal counts one refusal by the limit of the claims from (inclusive) to to (exclusive), and
// bans their key if that was the last one allowed.
func (a *admitter) countRefusal(ctx context.Context, q *admission, by limiter.AdminStore, from, to int) error {
	of := q.claims.window(from).of
	count := []limiter.Claim{{Limit: &of.refusalLimit, Key: q.claims[from].Key, Cost: 1, Source: q.source}}
	var d limiter.Decision
	if err := by.Take(ctx, count, &d); err != nil {
		return err
	}
	if d.Allowed && d.Outcomes[0].Remaining > 0 {
		return nil
	}
	banned := q.claims[from:to]
	if err := by.Ban(ctx, banned, of.Penalty.Ban); err != nil {
		return err
	}
	a.metrics.bans.WithLabelValues(of.Route, of.Name).Inc()
	q.banned = true
	for i := from; i < to; i++ {
		o := &q.decision.Outcomes[i]
		o.Allowed, o.Unknown, o.Banned, o.Remaining, o.Wait = false, false, true, 0, max(o.Wait, of.Penalty.Ban)
		q.decision.Wait = max(q.decision.Wait, o.Wait)
	}
	err := by.Reset(ctx, count)
	if _, isFallback := by.(reporting); a.announcer != nil && !isFallback && of.OnStoreFailure == config.Local {
		a.spreadBan(ctx, banned, of.Penalty.Ban)
	}
	return err
}

// spreadBan makes a ban in the shared store known to the fallbacks of all nodes, so that it holds
// while the store is unreachable, also on nodes that have never seen the key. A node that cannot be
// notified, or starts later, knows of it once it sees the key.
func (a *admitter) spreadBan(ctx context.Context, banned []limiter.Claim, ban time.Duration) {
	a.fallback.recordBan(banned, ban)
	if banned[0].Limit.Scope == limiter.PerClient {
		return // only this node has banned the key
	}
	_ = a.announce(ctx, limiter.Change{Action: limiter.ActionBan, Ban: ban, Automatic: true}, banned) // the ban holds in the store
}

// A cooldownReset resets the cooldown of a limit of another route.
type cooldownReset struct {
	key    *key.Spec // the key, as the route whose responses reset the cooldown reads it
	status config.Statuses
	window *window
}

// addCooldownResets adds the cooldown resets to the routes whose responses trigger them. A limit with mode off
// has no cooldown to reset.
func addCooldownResets(limits []*limit, made map[string]*limitRoute) {
	for _, l := range limits {
		if l.Reset == nil {
			continue
		}
		by := made[l.Reset.Route]
		by.settlesHead = true
		by.cooldownResets = append(by.cooldownResets, cooldownReset{key: l.Reset.Key, status: l.Reset.Status, window: l.windows[0]})
	}
}

// resetCooldown starts to reset the cooldown and the ban that a key has under the limit of r. If the store is
// unreachable, they remain.
func (a *admitter) resetCooldown(q *admission, r *cooldownReset, k *extractedKey) {
	claims := []limiter.Claim{{Limit: &r.window.Limit, Key: k.Key, Cost: 1}}
	if q.bothSecrets {
		claims = append(claims, limiter.Claim{Limit: &r.window.Limit, Key: k.previous, Cost: 1})
	}
	if err := a.fallback.local.Reset(context.Background(), claims); err != nil { // counted while the store was unreachable
		q.fail(fmt.Errorf("reset cooldown: %w", err))
		return
	}
	wait := startReset(a.store, claims)
	q.settled.start("reset cooldown", func() error {
		err := wait()
		if err == nil {
			a.metrics.resets.WithLabelValues(r.window.of.Route, r.window.of.Name).Inc()
		}
		return err
	})
}
