package proxy

import (
	"context"
	"fmt"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// A cooldownReset resets the cooldown of a limit of another route.
type cooldownReset struct {
	key    *key.Spec // the key, as the route whose responses reset the cooldown reads it
	status config.Statuses
	window *window
}

// addCooldownResets adds the cooldown resets to the routes whose responses trigger them. A limit with mode off
// has no cooldown to reset.
func (g *generation) addCooldownResets(made map[string]*route) {
	for _, l := range g.limits {
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
