package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Renew implements limiter.Keeper.
func (s *Store) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := limiter.CheckAll(claims); err != nil || len(claims) == 0 {
		return err
	}
	return s.each(claims, func(part *part) error {
		held, err := s.change(ctx, s.scripts.renew, part.claims, taken(part.claims, p)...)
		if err != nil {
			return fmt.Errorf("renew %d claims: %w", len(part.claims), err)
		}
		if held < int64(len(part.claims)) {
			return limiter.ErrReturned
		}
		return nil
	})
}

// Reset implements limiter.Keeper.
func (s *Store) Reset(ctx context.Context, claims []limiter.Claim) error {
	return s.keep(ctx, "reset", s.scripts.reset, claims, nothing)
}

// Grant implements limiter.Keeper.
func (s *Store) Grant(ctx context.Context, claims []limiter.Claim) error {
	return s.keep(ctx, "grant", s.scripts.grant, claims, func(claims []limiter.Claim) []any {
		costs := make([]any, len(claims))
		for i, c := range claims {
			costs[i] = c.Cost
		}
		return costs
	})
}

// Ban implements limiter.Keeper.
func (s *Store) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	if err := limiter.CheckBan(d); err != nil {
		return err
	}
	if slices.ContainsFunc(claims, func(c limiter.Claim) bool { return c.Redisson != "" }) {
		return fmt.Errorf("%w: a limiter shared with Redisson cannot be banned", limiter.ErrLimit)
	}
	return s.keep(ctx, "ban", s.scripts.ban, claims, func([]limiter.Claim) []any { return []any{d.Milliseconds()} })
}

func nothing([]limiter.Claim) []any { return nil }

// keep runs a script for each part of claims; rest is what else it is told.
func (s *Store) keep(ctx context.Context, verb string, sc script, claims []limiter.Claim, rest func([]limiter.Claim) []any) error {
	if err := limiter.CheckAll(claims); err != nil || len(claims) == 0 {
		return err
	}
	return s.each(claims, func(p *part) error {
		if _, err := s.change(ctx, sc, p.claims, rest(p.claims)...); err != nil {
			return fmt.Errorf("%s %d claims: %w", verb, len(p.claims), err)
		}
		s.denials.forgetAll(p.claims)
		return nil
	})
}
