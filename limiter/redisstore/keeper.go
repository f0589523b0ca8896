package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// Renew implements limiter.Keeper.
func (s *Store) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	if err := limiter.CheckAll(claims); err != nil || len(claims) == 0 {
		return err
	}
	held, err := s.change(ctx, s.scripts.renew, claims, taken(claims, p)...)
	if err != nil {
		return fmt.Errorf("renew %d claims: %w", len(claims), err)
	}
	if held < int64(len(claims)) {
		return limiter.ErrReturned
	}
	return nil
}

// Reset implements limiter.Keeper.
func (s *Store) Reset(ctx context.Context, claims []limiter.Claim) error {
	return s.keep(ctx, "reset", s.scripts.reset, claims)
}

// Grant implements limiter.Keeper.
func (s *Store) Grant(ctx context.Context, claims []limiter.Claim) error {
	costs := make([]any, len(claims))
	for i, c := range claims {
		costs[i] = c.Cost
	}
	return s.keep(ctx, "grant", s.scripts.grant, claims, costs...)
}

// Ban implements limiter.Keeper.
func (s *Store) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	if err := limiter.CheckBan(d); err != nil {
		return err
	}
	return s.keep(ctx, "ban", s.scripts.ban, claims, d.Milliseconds())
}

func (s *Store) keep(ctx context.Context, verb string, sc script, claims []limiter.Claim, rest ...any) error {
	if err := limiter.CheckAll(claims); err != nil || len(claims) == 0 {
		return err
	}
	if _, err := s.change(ctx, sc, claims, rest...); err != nil {
		return fmt.Errorf("%s %d claims: %w", verb, len(claims), err)
	}
	return nil
}
