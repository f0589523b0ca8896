package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

// sendReports has Redis count what is to be told of the windows of claims, or of all
// windows if there are none. One caller at a time does so; the others find that
// it is done.
func (s *Store) sendReports(ctx context.Context, claims []limiter.Claim) error {
	select {
	case s.reports.sendLock <- struct{}{}:
		defer func() { <-s.reports.sendLock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		told := s.reports.startSending(claims, s.partSlot)
		if len(told) == 0 {
			return nil
		}
		switch err := s.sendReport(ctx, told); {
		case errors.Is(err, ErrShared): // it never will be, and must not hold up the others
			s.reports.remove(told, &s.reports.dropped)
		case err != nil:
			s.reports.keep(told)
			return err
		default:
			s.reports.remove(told, &s.reports.reported)
		}
	}
}

// sendReport sends one call.
func (s *Store) sendReport(ctx context.Context, told []*report) error {
	now := time.Now()
	claims, packed := make([]limiter.Claim, len(told)), make([]any, len(told))
	s.reports.mu.Lock()
	for i, r := range told {
		claims[i], packed[i] = r.claim, r.encode(now)
	}
	s.reports.mu.Unlock()
	var err error
	if c := claims[0]; c.RedissonName != "" {
		_, err = s.changeShared(ctx, s.shared(c.RedissonFormat).report, c, packed...)
	} else {
		_, err = s.change(ctx, s.scripts.report, claims, packed...)
	}
	return err
}
