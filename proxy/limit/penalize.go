package limit

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
func (a *Admitter) penalize(ctx context.Context, q *Admission, by limiter.AdminStore) {
	for from, to := 0, 0; from < len(q.Claims); from = to {
		var of *Limit
		var said limiter.Outcome
		if of, to, said = q.Claims.DecidedAt(from, q.Decision.Outcomes); of.Penalty == nil || said.Allowed || said.Banned {
			continue
		}
		if err := a.countRefusal(ctx, q, by, from, to); err != nil {
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
	q.Banned = true
	for i := from; i < to; i++ {
		o := &q.Decision.Outcomes[i]
		o.Allowed, o.Unknown, o.Banned, o.Remaining, o.Wait = false, false, true, 0, max(o.Wait, of.Penalty.Ban)
		q.Decision.Wait = max(q.Decision.Wait, o.Wait)
	}
	err := by.Reset(ctx, count)
	if _, isFallback := by.(reporting); a.Announcer != nil && !isFallback && of.OnStoreFailure == config.Local {
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

// A cooldownReset resets the cooldown of a limit of another route.
type cooldownReset struct {
	key    *key.Spec // the key, as the route whose responses reset the cooldown reads it
	status config.Statuses
	window *Window
}

// addCooldownResets adds the cooldown resets to the routes whose responses trigger them. A limit with mode off
// has no cooldown to reset.
func addCooldownResets(limits []*Limit, made map[string]*Route) {
	for _, l := range limits {
		if l.Reset == nil {
			continue
		}
		by := made[l.Reset.Route]
		by.SettlesHead = true
		by.CooldownResets = append(by.CooldownResets, cooldownReset{key: l.Reset.Key, status: l.Reset.Status, window: l.Windows[0]})
	}
}

// resetCooldown starts to reset the cooldown and the ban that a key has under the limit of r. If the store is
// unreachable, they remain.
func (a *Admitter) resetCooldown(q *Admission, r *cooldownReset, k *Key) {
	claims := []limiter.Claim{{Limit: &r.window.Limit, Key: k.Key, Cost: 1}}
	if q.BothSecrets {
		claims = append(claims, limiter.Claim{Limit: &r.window.Limit, Key: k.Previous, Cost: 1})
	}
	if err := a.Fallback.Local.Reset(context.Background(), claims); err != nil { // counted while the store was unreachable
		q.Fail(fmt.Errorf("reset cooldown: %w", err))
		return
	}
	wait := startReset(a.Store, claims)
	q.Settled.start("reset cooldown", func() error {
		err := wait()
		if err == nil {
			a.metrics.Resets.WithLabelValues(r.window.Of.Route, r.window.Of.Name).Inc()
		}
		return err
	})
}
