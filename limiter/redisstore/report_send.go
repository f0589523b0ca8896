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
		switch err := s.sendReport(ctx, reports); {
		case errors.Is(err, ErrRedisson): // a retry would fail too, and block the other reports
			s.reports.remove(reports, &s.reports.dropped)
		case err != nil:
			s.reports.keep(reports)
			return err
		default:
			s.reports.remove(reports, &s.reports.reported)
		}
	}
}

// sendReport sends reports in one call.
func (s *Store) sendReport(ctx context.Context, reports []*report) error {
	now := time.Now()
	claims, encoded := make([]limiter.Claim, len(reports)), make([]any, len(reports))
	s.reports.mu.Lock()
	for i, r := range reports {
		claims[i], encoded[i] = r.claim, r.encode(now)
	}
	s.reports.mu.Unlock()
	var err error
	if c := claims[0]; c.RedissonName != "" {
		_, err = s.changeRedisson(ctx, s.redisson(c.RedissonFormat).report, c, encoded...)
	} else {
		_, err = s.change(ctx, s.scripts.report, claims, encoded...)
	}
	return err
}
