package limitertest

import (
	"context"
	"slices"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// slidingLogStore uses a sliding log wherever a test uses a token bucket, because both
// have the same guarantees.
type slidingLogStore struct{ limiter.AdminStore }

func slidingLogClaims(claims []limiter.Claim) []limiter.Claim {
	claims = slices.Clone(claims)
	for i, c := range claims {
		if c.Limit != nil && c.Limit.Algorithm.IsRedisson() {
			l := *c.Limit
			l.Algorithm = limiter.SlidingLog
			claims[i].Limit = &l
		}
	}
	return claims
}

func (s slidingLogStore) Take(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.AdminStore.Take(ctx, slidingLogClaims(claims), d)
}

func (s slidingLogStore) Peek(ctx context.Context, claims []limiter.Claim, d *limiter.Decision) error {
	return s.AdminStore.Peek(ctx, slidingLogClaims(claims), d)
}

func (s slidingLogStore) Refund(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.AdminStore.Refund(ctx, slidingLogClaims(claims), p)
}

func (s slidingLogStore) Renew(ctx context.Context, claims []limiter.Claim, p limiter.Permit) error {
	return s.AdminStore.Renew(ctx, slidingLogClaims(claims), p)
}

func (s slidingLogStore) Reset(ctx context.Context, claims []limiter.Claim) error {
	return s.AdminStore.Reset(ctx, slidingLogClaims(claims))
}

func (s slidingLogStore) Grant(ctx context.Context, claims []limiter.Claim) error {
	return s.AdminStore.Grant(ctx, slidingLogClaims(claims))
}

func (s slidingLogStore) Ban(ctx context.Context, claims []limiter.Claim, d time.Duration) error {
	return s.AdminStore.Ban(ctx, slidingLogClaims(claims), d)
}

func (s slidingLogStore) Inspect(ctx context.Context, claims []limiter.Claim) (limiter.Inspection, error) {
	return s.AdminStore.Inspect(ctx, slidingLogClaims(claims))
}
