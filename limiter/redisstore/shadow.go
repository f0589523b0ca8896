package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// A shadowCall is the part of a call that is one shadow of its request.
type shadowCall struct {
	size     int // how many of the call's claims it has
	decision limiter.Decision
	err      error
}

// TakeWithShadows implements limiter.ShadowTaker. It takes one round trip and is atomic in
// Redis, unless the claims lie in several slots of a cluster or in limiters shared with
// Redisson: then the shadows are taken after the claims, all of them at the same time.
func (s *Store) TakeWithShadows(ctx context.Context, claims []limiter.Claim, d *limiter.Decision, shadows []limiter.Shadow) error {
	open := s.openShadows(claims, shadows)
	if !s.isOneCall(claims, open) {
		*d = limiter.Decision{Allowed: true, At: time.Now(), Outcomes: d.Outcomes[:0]}
		if len(claims) > 0 {
			if err := s.Take(ctx, claims, d); err != nil || !d.Allowed {
				return err
			}
		}
		s.takeAtOnce(ctx, open)
		return nil
	}
	if err := limiter.CheckClaims(claims); err != nil {
		return err
	}
	if s.refusals.decide(refusalTTL, claims, d) {
		return nil
	}
	if err := s.takeInOneCall(ctx, claims, d, open); err != nil {
		s.recordFailure(err)
		if s.refusals.decide(noExpiry, claims, d) {
			return nil
		}
		return fmt.Errorf("decide by %d limits: %w: %w", len(claims), limiter.ErrUnavailable, err)
	}
	return nil
}

// openShadows returns those of shadows for which Redis must be called. The others are not valid,
// or known to be refused.
func (s *Store) openShadows(claims []limiter.Claim, shadows []limiter.Shadow) []*limiter.Shadow {
	limiter.CheckShadows(claims, shadows)
	open := make([]*limiter.Shadow, 0, len(shadows))
	for i := range shadows {
		if h := &shadows[i]; h.Err == nil && !s.refusals.decide(refusalTTL, h.Claims, &h.Decision) {
			open = append(open, h)
		}
	}
	return open
}

// isOneCall reports whether one script call can decide claims and shadows.
func (s *Store) isOneCall(claims []limiter.Claim, shadows []*limiter.Shadow) bool {
	if len(claims) == 0 || len(shadows) == 0 || s.reports.windows.Load() > 0 && s.reports.hasAny(claims) {
		return false
	}
	isOther := func(all []limiter.Claim) bool {
		for i := range all {
			if all[i].RedissonName != "" || s.isCluster && isNoted(&all[i]) || s.partSlot(&all[i]) != s.partSlot(&claims[0]) {
				return true
			}
		}
		return false
	}
	for _, h := range shadows {
		if isOther(h.Claims) {
			return false
		}
	}
	return !isOther(claims)
}

// takeAtOnce takes each of shadows at the same time.
func (s *Store) takeAtOnce(ctx context.Context, shadows []*limiter.Shadow) {
	if len(shadows) == 1 {
		shadows[0].Err = s.Take(ctx, shadows[0].Claims, &shadows[0].Decision)
		return
	}
	var all sync.WaitGroup
	for _, h := range shadows {
		all.Go(func() { h.Err = s.Take(ctx, h.Claims, &h.Decision) })
	}
	all.Wait()
}

// takeInOneCall takes claims and shadows, which have one permit ID: their windows differ.
func (s *Store) takeInOneCall(ctx context.Context, claims []limiter.Claim, d *limiter.Decision, shadows []*limiter.Shadow) error {
	p, err := s.pipelines.forClaim(ctx, &claims[0])
	if err != nil {
		return err
	}
	c := s.newCall(claims, newID())
	c.notes = !s.isCluster
	for _, h := range shadows {
		c.claims = append(c.claims, h.Claims...)
		c.shadows = append(c.shadows, shadowCall{size: len(h.Claims)})
	}
	if err := p.do(ctx, c); err != nil {
		return err
	}
	c.readInto(d, &c.decision)
	for i, h := range shadows {
		h.Err = c.shadows[i].err
		c.readInto(&h.Decision, &c.shadows[i].decision)
	}
	s.reuseCall(c)
	return nil
}

// addWithShadows adds the request of c, and its shadows behind it.
func (b *batch) addWithShadows(g *slotBatch, c *call) {
	b.addRequest(g, c, c.request(), b.index.find(&c.claims[0]))
	p := &g.payload
	p.follows = append(p.follows, make([]byte, p.requestCount-len(p.follows))...)
	from := c.own
	for i := range c.shadows {
		to := from + c.shadows[i].size
		b.addRequest(g, c, c.claims[from:to], b.index.find(&c.claims[from]))
		p.follows, from = append(p.follows, 1), to
	}
}

// readShadows reads the decisions about the shadows of c at the start of list into c. They
// mean nothing if the request was refused. It returns the rest of list.
func (b *batch) readShadows(list []int64, at time.Time, c *call) []int64 {
	from := c.own
	for i := range c.shadows {
		h := &c.shadows[i]
		d, claims := &b.scratch, c.claims[from:from+h.size]
		if c.state == callAnswered {
			d = &h.decision
		}
		from += h.size
		var err error
		list, err = b.readDecision(list, at, claims, d)
		if err == nil && d.Allowed {
			b.addLate(c, claims, at)
		}
		if c.state == callAnswered {
			h.err = err
		}
	}
	return list
}
