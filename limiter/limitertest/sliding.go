package limitertest

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// sliding asks a store for a sliding log wherever a test asks for a token bucket: the
// two promise the same.
type sliding struct{ limiter.AdminStore }

func slide(claims []limiter.Claim) []limiter.Claim {
	claims = slices.Clone(claims)
	for i, c := range claims {
		if c.Limit != nil && c.Limit.Algorithm == limiter.TokenBucket {
			l := *c.Limit
			l.Algorithm = limiter.SlidingLog
			claims[i].Limit = &l
		}
	}
	return claims
}

func (s sliding) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.AdminStore.Take(ctx, slide(claims), d)
}

func (s sliding) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.AdminStore.Peek(ctx, slide(claims), d)
}

func (s sliding) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.AdminStore.Refund(ctx, slide(claims), p)
}

func (s sliding) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.AdminStore.Renew(ctx, slide(claims), p)
}

func (s sliding) Reset(ctx context.Context, claims []limiter.Claim) error {
	return s.AdminStore.Reset(ctx, slide(claims))
}

func (s sliding) Grant(ctx context.Context, claims []limiter.Claim) error {
	return s.AdminStore.Grant(ctx, slide(claims))
}

func (s sliding) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	return s.AdminStore.Ban(ctx, slide(claims), d)
}

func (s sliding) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	return s.AdminStore.Inspect(ctx, slide(claims))
}
