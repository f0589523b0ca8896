package proxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// maxDeferred is the maximum number of changes that wait for the store.
const maxDeferred = 1000

// A deferredChange is a change of one limit that was made while the store was unreachable, and that
// waits for it.
type deferredChange struct {
	limiter.Change
	claims []limiter.Claim
	limit  string // by its full name
	hash   string // of the key in the log
	at     time.Time
	until  time.Time // when it has no effect any more
	of     *deferral
}

// A deferral is what becomes of the parts of one operator's change that wait for the store.
type deferral struct {
	left atomic.Int32 // parts that wait
	lost atomic.Bool  // some part had no effect any more, or could not be applied
}

// deferredChanges are the changes that wait for the store, oldest first. They are lost if the process
// ends before the store is reachable again.
type deferredChanges struct {
	applying sync.Mutex // held by ApplyDeferred

	mu      sync.Mutex // guards what follows; never held over I/O
	waiting []deferredChange
}

// add adds c as a part of a change, and reports whether there was room.
func (d *deferredChanges) add(c deferredChange, of *deferral) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) >= maxDeferred {
		return false
	}
	c.of = of
	of.left.Add(1)
	d.waiting = append(d.waiting, c)
	return true
}

// first returns the oldest change.
func (d *deferredChanges) first() (c deferredChange, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.waiting) == 0 {
		return c, false
	}
	return d.waiting[0], true
}

// has reports whether a change of k waits.
func (d *deferredChanges) has(k limiter.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.waiting, func(c deferredChange) bool { return slices.Contains(keysOf(c.claims), k) })
}

// removeFirst removes the oldest change.
func (d *deferredChanges) removeFirst() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = slices.Delete(d.waiting, 0, 1)
}

// deferChange returns c for the limit of t as a change that waits for the store. The time of a ban ends when
// it says; a reset or a grant is about permits that were taken before it, which come back by themselves.
func (g *generation) deferChange(t *keyTarget, c limiter.Change, claims []limiter.Claim) deferredChange {
	now := time.Now()
	d := deferredChange{
		Change: c, claims: claims, limit: t.limit.FullName(), hash: g.redact.KeyHash(t.key), at: now, until: now.Add(c.Ban),
	}
	if c.Action != limiter.ActionBan {
		for _, claim := range claims {
			d.until = latest(d.until, now.Add(claim.Limit.Rate.Window))
		}
	} else if c.Ban == 0 {
		d.until = now.Add(limiter.MaxWindow) // no ban is longer
	}
	return d
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ApplyDeferred applies the changes that were made while the store was unreachable, in their order, as far
// as their time is not over: a ban lasts as long as it would have. It returns at once if nothing waits or another
// call applies them, and at the first failure; it is to be called again then.
func (p *Proxy) ApplyDeferred(ctx context.Context) {
	d := &p.admitter.deferred
	if !d.applying.TryLock() {
		return
	}
	defer d.applying.Unlock()
	for {
		c, found := d.first()
		if !found {
			return
		}
		rest := time.Until(c.until)
		var err error
		if rest > 0 {
			err = p.applyDeferred(ctx, c, rest)
			if errors.Is(err, limiter.ErrUnavailable) {
				return
			}
			if err != nil {
				p.log.Warn().Err(err).Str("action", string(c.Action)).Str("key_hash", c.hash).Str("limit", c.limit).Msg("key change not applied")
			}
		}
		d.removeFirst()
		if err != nil || rest <= 0 {
			c.of.lost.Store(true)
		}
		c.of.left.Add(-1)
		p.log.Info().Str("action", string(c.Action)).Str("key_hash", c.hash).Str("limit", c.limit).Bool("expired", rest <= 0).
			Float64("waited_s", time.Since(c.at).Seconds()).Msg("deferred key change")
	}
}

// applyDeferred applies c under the limits as they are configured now; those that were removed are left out.
func (p *Proxy) applyDeferred(ctx context.Context, c deferredChange, rest time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, operateTimeout)
	defer cancel()
	if c.Ban > 0 {
		c.Ban = rest.Truncate(time.Millisecond) + time.Millisecond
	}
	claims := p.current.Load().configured(c.claims)
	if len(claims) == 0 {
		return nil
	}
	if _, err := p.admitter.applyToStore(ctx, c.Change, claims); err != nil {
		return err
	}
	if p.admitter.announcer != nil {
		_ = p.admitter.announce(ctx, c.Change, claims) // on failure other nodes miss it only in their fallbacks
	}
	return nil
}

// configured returns claims with the limits of g in place of those of an earlier generation.
func (g *generation) configured(claims []limiter.Claim) (all []limiter.Claim) {
	for _, k := range keysOf(claims) {
		c := limiter.Change{Key: k}
		for _, claim := range claims {
			c.Limits = append(c.Limits, claim.Limit.Name)
		}
		now, _ := g.claimsOf(c)
		for _, n := range now {
			i := slices.IndexFunc(claims, func(was limiter.Claim) bool { return was.Key == k && was.Limit.Name == n.Limit.Name })
			if i >= 0 {
				was := claims[i]
				was.Limit = n.Limit
				all = append(all, was)
			}
		}
	}
	return all
}

// logLostChanges logs the changes that still wait.
func (p *Proxy) logLostChanges() {
	d := &p.admitter.deferred
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		line := p.log.Warn().Str("action", string(c.Action)).Str("key_hash", c.hash).Str("limit", c.limit)
		if rest := time.Until(c.until); c.Ban > 0 && rest > 0 {
			line = line.Str("for", limiter.FormatDuration(rest.Round(time.Second)))
		}
		line.Msg("key change lost; redis was not reachable again before this node ended")
	}
}
