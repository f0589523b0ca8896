package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Renew implements limiter.AdminStore.
func (s *Store) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := limiter.CheckClaims(claims); err != nil || len(claims) == 0 {
		return err
	}
	return s.forEachPart(claims, func(part *part) error {
		held, err := s.change(ctx, s.scripts.renew, part.claims, refundArgs(part.claims, p)...)
		if err != nil {
			return fmt.Errorf("renew permits of %d limits: %w", len(part.claims), err)
		}
		if held < int64(len(part.claims)) {
			return limiter.ErrNotHeld
		}
		return nil
	})
}

// Reset implements limiter.AdminStore.
func (s *Store) Reset(_ context.Context, claims []limiter.Claim) error { return s.StartReset(claims)() }

// Grant implements limiter.AdminStore.
func (s *Store) Grant(ctx context.Context, claims []limiter.Claim) error {
	return s.changeParts(ctx, "grant", claims, func(p *part) error {
		if c := p.claims[0]; c.RedissonName != "" {
			return s.grantRedisson(ctx, c)
		}
		costs := make([]any, len(p.claims))
		for i, c := range p.claims {
			costs[i] = c.Cost
		}
		_, err := s.change(ctx, s.scripts.grant, p.claims, costs...)
		return err
	})
}

// Ban implements limiter.AdminStore.
func (s *Store) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	if err := limiter.CheckBan(d); err != nil {
		return err
	}
	if slices.ContainsFunc(claims, func(c limiter.Claim) bool { return c.RedissonName != "" }) {
		return fmt.Errorf("%w: a limiter shared with Redisson cannot be banned", limiter.ErrInvalidLimit)
	}
	return s.changeParts(ctx, "ban", claims, func(p *part) error {
		_, err := s.change(ctx, s.scripts.ban, p.claims, d.Milliseconds())
		return err
	})
}

// grantRedisson removes permits from the entries of a limiter shared with Redisson, in
// bounded steps.
func (s *Store) grantRedisson(ctx context.Context, c limiter.Claim) error {
	rest, err := c.Cost, error(nil)
	for rest > 0 && err == nil {
		rest, err = s.changeRedisson(ctx, s.redisson(c.RedissonFormat).grant, c, rest)
	}
	return err
}

// changeParts calls change for each part of claims. verb is for errors.
func (s *Store) changeParts(ctx context.Context, verb string, claims []limiter.Claim, change func(p *part) error) error {
	if err := limiter.CheckClaims(claims); err != nil || len(claims) == 0 {
		return err
	}
	return s.forEachPart(claims, func(p *part) error {
		if err := change(p); err != nil {
			return fmt.Errorf("%s in %d limits: %w", verb, len(p.claims), err)
		}
		s.refusals.invalidateClaims(p.claims)
		return nil
	})
}
