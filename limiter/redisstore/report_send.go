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

// deliver sends reports, and then refunds what was withdrawn meanwhile. Redis takes the time of a grant
// for up to a round trip later than it was, and refunds nothing that is older than its window. If a refund
// fails its permits stay taken.
func (s *Store) deliver(ctx context.Context, reports []*report) error {
	began := time.Now()
	switch err := s.sendReport(ctx, reports); {
	case errors.Is(err, ErrRedisson): // a retry would fail too, and block the other reports
		s.reports.remove(reports, &s.reports.dropped)
	case err != nil:
		s.reports.keep(reports)
		return err
	default:
		for _, w := range s.reports.remove(reports, &s.reports.reported) {
			w.permit.At = w.permit.At.Add(time.Since(began) + time.Millisecond)
			_ = s.Refund(ctx, []limiter.Claim{w.claim}, w.permit)
		}
	}
	return nil
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
