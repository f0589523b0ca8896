package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// A cooldownReset lets the cooldown of a limit of another route begin again.
type cooldownReset struct {
	key    *key.Spec // as the route whose answers count reads it
	status config.Statuses
	of     *window
	route  string // that the limit is of
}

// resets tells the routes whose cooldowns their responses end. A limit that is
// off has nothing to end.
func (g *generation) resets(made map[string]*route) {
	for _, from := range g.config.Routes {
		r := made[from.Name]
		for _, l := range from.Limits {
			if l.Reset == nil || l.Mode == config.Off {
				continue
			}
			i := slices.IndexFunc(r.windows, func(w *window) bool { return w.of.Name == l.Name })
			by := made[l.Reset.Route]
			by.resets = append(by.resets, cooldownReset{key: l.Reset.Key, status: l.Reset.Status, of: r.windows[i], route: r.Name})
		}
	}
}

// resetCooldowns lets begin again what the outcome of a request ends: the cooldowns
// that its key has on other routes, and bans of it there. A store that cannot be told
// leaves them as they are, and so does a request that was let pass without being
// counted: whoever may ask as often as he likes could end them as often.
func (a *admitter) resetCooldowns(ctx context.Context, q *admission, keys []extractedKey, status int) {
	if q.exempt || q.repeated {
		return
	}
	for _, r := range q.route.resets {
		i := slices.IndexFunc(keys, func(k extractedKey) bool { return k.by == r.key })
		if i < 0 || keys[i].skip || !r.status.Has(status) {
			continue
		}
		claims := []limiter.Claim{{Limit: &r.of.Limit, Key: keys[i].Key, Cost: 1}}
		if q.bothSecrets {
			claims = append(claims, limiter.Claim{Limit: &r.of.Limit, Key: keys[i].previous, Cost: 1})
		}
		if err := a.reset(ctx, claims); err != nil {
			q.fail(fmt.Errorf("end a cooldown: %w", err))
			continue
		}
		a.metrics.resets.WithLabelValues(r.route, r.of.of.Name).Inc()
	}
}

// reset forgets what is counted for claims, here and in the store, though the
// client may have left.
func (a *admitter) reset(ctx context.Context, claims []limiter.Claim) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	began := time.Now()
	err := a.store.Reset(ctx, claims)
	a.metrics.asked("reset", time.Since(began), err)
	return errors.Join(err, a.fallback.local.Reset(ctx, claims)) // what was counted while the store was unreachable
}
