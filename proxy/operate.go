package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// A KeyResult is what came of a change. It does not hold the value of the key.
type KeyResult struct {
	KeyChange
	// Changed are the limits under which something was changed, and Skipped those
	// under which nothing could be.
	Changed []LimitStanding `json:"changed"` // as they stand now
	Skipped []SkippedLimit  `json:"skipped,omitempty"`
	At      time.Time       `json:"at"`
	// Everywhere says that the change holds on all nodes. It does not while Redis is
	// unreachable: then it is made here, for as long as this node decides by itself,
	// and the other nodes have to be told each by itself.
	Everywhere bool     `json:"everywhere"`
	Notes      []string `json:"notes,omitempty"`
}

// A SkippedLimit is a limit that a change does not touch.
type SkippedLimit struct {
	Route string `json:"route"`
	Limit string `json:"limit"`
	Why   string `json:"why"`
}

// An announcer is a store that tells other processes of changes, and hears of theirs.
// redisstore.Store is one.
type announcer interface {
	Announce(ctx context.Context, c limiter.Change) error
	OnChange(f func(limiter.Change))
}

// Change does what c says: in the store, in what this node decides by while the store is
// unreachable, and, as they hear of it, in that of all others; what nodes remember of
// refusals is forgotten with it. Limits that count by a part of the key, as its country,
// are left alone unless the part is named. An error says that nothing was changed: it
// wraps ErrKeyQuery, or limiter.ErrUnavailable.
func (p *Proxy) Change(ctx context.Context, c KeyChange) (KeyResult, error) {
	change, err := c.change()
	if err != nil {
		return KeyResult{}, err
	}
	g := p.current.Load()
	targets, err := g.targets(c.KeyQuery, p.keyOf)
	if err != nil {
		return KeyResult{}, err
	}
	r := KeyResult{KeyChange: c, Changed: []LimitStanding{}, Everywhere: true}
	r.Pairs = nil // a result may be shown to others
	targets = slices.DeleteFunc(targets, func(t keyTarget) bool {
		why := t.unchangeable(c.Action)
		if why != "" {
			r.Skipped = append(r.Skipped, SkippedLimit{t.route.Name, t.limit.Name, why})
		}
		return why != ""
	})
	if len(targets) == 0 {
		return KeyResult{}, fmt.Errorf("%w: nothing can be changed; %s.%s: %s", ErrKeyQuery, r.Skipped[0].Route, r.Skipped[0].Limit, r.Skipped[0].Why)
	}
	// The client that asked for it may leave; half a change is worse than a late one.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), operateTimeout)
	defer cancel()
	var wrong error
	changed := targets[:0]
	for _, t := range targets {
		everywhere, err := p.admitter.change(within, &t, change)
		if err != nil {
			r.Skipped = append(r.Skipped, SkippedLimit{t.route.Name, t.limit.Name, "the store: " + err.Error()})
			wrong = errors.Join(wrong, fmt.Errorf("%s %s.%s: %w", c.Action, t.route.Name, t.limit.Name, err))
			continue
		}
		r.Everywhere = r.Everywhere && everywhere
		changed = append(changed, t)
	}
	if len(changed) == 0 {
		return KeyResult{}, wrong
	}
	s, err := p.standing(within, g, changed)
	r.Changed, r.At, r.Notes = s.Limits, s.At, s.Notes
	if !r.Everywhere {
		r.Notes = append(r.Notes, "redis cannot be reached: the change is made on this node alone, until redis is back")
	}
	return r, err
}

// unchangeable is why an action cannot be taken on t; empty if it can.
func (t *keyTarget) unchangeable(a KeyAction) string {
	switch {
	case t.why != "":
		return t.why
	case t.derived:
		return "it counts by " + t.masked + ", and so for others as well; name that to change it"
	case t.name != "" && (a == KeyBan || a == KeyUnban):
		return "a limiter that Java programs share has no bans"
	}
	return ""
}

// targeted are the claims that a change is made to: a penalty forgets with its limit,
// and is neither granted nor banned.
func (t *keyTarget) targeted(c limiter.Change) []limiter.Claim {
	claims := t.claims()
	if t.limit.Penalty != nil && c.Action != limiter.ActionReset {
		claims = slices.DeleteFunc(claims, func(claim limiter.Claim) bool { return claim.Limit == &t.limit.refusals })
	}
	return claims
}

// change changes what is counted for t, here and wherever it is heard of, and reports
// whether that is everywhere.
func (a *admitter) change(ctx context.Context, t *keyTarget, c limiter.Change) (everywhere bool, err error) {
	claims := t.targeted(c)
	began := time.Now()
	err = c.Apply(ctx, a.store, claims)
	a.metrics.asked(string(c.Action), time.Since(began), err)
	away := errors.Is(err, limiter.ErrUnavailable)
	if err != nil && (!away || t.limit.OnStoreFailure != config.Local) {
		return false, err
	}
	if err := a.fallback.change(ctx, c, claims); err != nil {
		return false, err
	}
	if away {
		return false, nil
	}
	if a.announcer == nil {
		return true, nil
	}
	for _, k := range keysOf(claims) {
		c.Key, c.Limits = k, nil
		for _, claim := range claims {
			if claim.Key == k {
				c.Limits = append(c.Limits, claim.Limit.Name)
			}
		}
		if err := a.announcer.Announce(ctx, c); err != nil {
			return false, nil // it holds in the store; what it is told of matters when that is away
		}
	}
	return true, nil
}

// keysOf are the keys of claims, each once.
func keysOf(claims []limiter.Claim) (keys []limiter.Key) {
	for _, c := range claims {
		if !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// change changes what this node decides by while the store is unreachable. Of permits
// that are granted it gives its share.
func (s *fallback) change(ctx context.Context, c limiter.Change, claims []limiter.Claim) error {
	if n := int64(s.nodes()); c.Action == limiter.ActionGrant {
		c.Grant = (c.Grant + n - 1) / n
		claims = s.shares(claims)
	}
	return c.Apply(ctx, s.local, claims)
}

// hear takes up a change that another node has made, for what this node counts by
// itself: its share for the time when the store is unreachable, and limits of
// scope per_client. A limit that is not served here is left out.
func (p *Proxy) hear(c limiter.Change) {
	claims, own := p.current.Load().claimsOf(c)
	if len(claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	err := p.admitter.fallback.change(ctx, c, claims)
	if len(own) > 0 {
		err = errors.Join(err, c.Apply(ctx, p.admitter.store, own))
	}
	if err != nil {
		p.log.Warn().Err(err).Msg("key change not applied")
	}
}

// claimsOf are claims under the limits that a change names; own are those that each
// node counts by itself, in the store.
func (g *generation) claimsOf(c limiter.Change) (claims, own []limiter.Claim) {
	for _, r := range g.routes {
		for _, l := range r.limits {
			t := keyTarget{route: r, limit: l, key: c.Key, windows: l.windows}
			t.override()
			for _, claim := range t.claims() {
				if !slices.Contains(c.Limits, claim.Limit.Name) || len(claims) == limiter.MaxClaims {
					continue
				}
				claims = append(claims, claim)
				if claim.Limit.Scope == limiter.PerClient && l.RedissonName == "" {
					own = append(own, claim)
				}
			}
		}
	}
	return claims, own
}
