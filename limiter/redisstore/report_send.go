package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// sendReports sends the pending reports about the windows of claims or, if claims is nil,
// about all windows. Only one caller at a time sends; the others find nothing left to
// send.
func (s *Store) sendReports(ctx context.Context, claims []limiter.Claim) error {
	select {
	case s.reports.sendLock <- struct{}{}:
		defer func() { <-s.reports.sendLock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		reports := s.reports.startSending(claims, s.partSlot)
		if len(reports) == 0 {
			return nil
		}
		if err := s.deliver(ctx, reports); err != nil {
			return err
		}
	}
}

// deliver sends reports, then notes what was told of Noted limits, and then refunds what was withdrawn meanwhile.
// If that fails, the permits stay taken.
func (s *Store) deliver(ctx context.Context, reports []*report) error {
	now := time.Now()
	redisNow, err := s.sendReport(ctx, reports, now)
	switch {
	case errors.Is(err, ErrRedisson): // a retry would fail too, and block the other reports
		s.reports.drop(reports)
		return nil
	case err != nil:
		s.reports.keep(reports)
		return err
	}
	told := s.reports.tell(reports, now, redisNow)
	var noted []*call
	for i := range told {
		noted = append(noted, s.startNotes([]limiter.Claim{told[i].claim}, told[i].permit)...)
	}
	waitFor(ctx, noted)
	for i := range told {
		if t := &told[i]; t.refund > 0 {
			t.claim.Cost = t.refund
			_ = s.Refund(ctx, []limiter.Claim{t.claim}, t.permit)
		}
	}
	return nil
}

// sendReport sends reports in one call, as they are at now. It returns the time of Redis, in ms since 1970.
func (s *Store) sendReport(ctx context.Context, reports []*report, now time.Time) (int64, error) {
	claims, encoded := make([]limiter.Claim, len(reports)), make([]any, len(reports))
	s.reports.mu.Lock()
	for i, r := range reports {
		claims[i], encoded[i] = r.claim, r.encode(now)
	}
	s.reports.mu.Unlock()
	if c := claims[0]; c.RedissonName != "" {
		return s.changeRedisson(ctx, s.redisson(c.RedissonFormat).report, c, encoded...)
	}
	return s.change(ctx, s.scripts.report, claims, encoded...)
}
